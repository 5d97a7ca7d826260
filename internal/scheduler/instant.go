package scheduler

import (
	"time"

	"github.com/jackc/pgx/v5/pgtype"
)

// An instant is a time that may be minus infinity in the database; that is the zero time in Go.
type instant time.Time

// ScanTimestamptz is how pgx hands it over.
func (i *instant) ScanTimestamptz(v pgtype.Timestamptz) error {
	*i = instant{}
	if v.Valid && v.InfinityModifier == pgtype.Finite {
		*i = instant(v.Time.UTC())
	}
	return nil
}
