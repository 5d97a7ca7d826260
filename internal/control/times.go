package control

// Times that another program may have written, and that Go or JSON cannot say: an infinity, or a year
// beyond 9999. Scanned as they are they would fail the look that finds them, and with it every other
// request and pause.

func sayable(column string) string {
	return column + ` >= '0001-01-02 UTC' AND ` + column + ` < '9999-12-31 UTC'`
}

// orNow is the column, or now where it cannot be said.
func orNow(column string) string {
	return `CASE WHEN ` + sayable(column) + ` THEN ` + column + ` ELSE clock_timestamp() END`
}

// orNever is the column, or NULL where it cannot be said.
func orNever(column string) string {
	return `CASE WHEN ` + sayable(column) + ` THEN ` + column + ` END`
}
