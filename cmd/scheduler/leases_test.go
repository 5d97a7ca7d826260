package main

import (
	"path"
	"strings"
	"testing"

	"rota/internal/pgtest"
)

// P10: an owner is one who holds the lease now; who held it before is said as that.
func TestLeasesTellWhoLeadsFromWhoLedBefore(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	db := lookAt(t, url)
	db.led("bridge_health", "a/1", 7)
	db.execute(`INSERT INTO leadership (job_name, owner, expires_at, epoch) VALUES ('symbol_sync', 'b/1', '2026-01-01Z', 3), ('quote_watch', '', '2026-01-01Z', 0)`)
	rows := map[string]string{}
	for line := range strings.Lines(told(t, url, "leases", "list")) {
		name, rest, _ := strings.Cut(strings.Join(strings.Fields(line), " "), " ")
		rows[name] = rest
	}
	for name, want := range map[string]string{
		"LEASE": "STATE OWNER EPOCH LEFT SINCE BEFORE", "bridge_health": "held a/1 7 * * *Z -", "reconciliation": "never - 0 - - -", "quote_watch": "never - 0 - - -",
		"symbol_sync": "free - 3 - - b/1, until * * expired",
	} {
		got := rows[name]
		if ok, err := path.Match(strings.ReplaceAll(want, "/", "|"), strings.ReplaceAll(got, "/", "|")); err != nil || !ok {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}
