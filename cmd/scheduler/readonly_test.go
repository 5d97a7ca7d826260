package main

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"rota/internal/lease"
	"rota/internal/pgtest"
)

// A session that began while the database was read-only stays so when that is over: if connections were kept,
// nothing would be led for as long as they live.
func TestConnectionsWriteAgainOnceTheDatabaseIsNoLongerReadOnly(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	readOnly := `ALTER DATABASE ` + pgx.Identifier{databaseOf(t, url)}.Sanitize() + ` SET default_transaction_read_only = `
	execute(t, url, readOnly+`on`)
	p, err := openPools(t.Context(), url, lease.NewOwner("test"), false)
	if err != nil {
		t.Fatal(err)
	}
	defer p.close()
	all := map[string]*pgxpool.Pool{"lease": p.lease, "engine": p.engine, "work": p.work, "page": p.page, "desk": p.desk, "steer": p.steer}
	write := func(pool *pgxpool.Pool) error {
		_, err := pool.Exec(t.Context(), `DELETE FROM requests WHERE false`)
		return err
	}
	for name, pool := range all {
		if err := write(pool); err == nil || !strings.Contains(err.Error(), "read-only") {
			t.Errorf("%s, while the database is read-only: %v", name, err)
		}
	}
	writable := url + "?"
	if strings.Contains(url, "?") {
		writable = url + "&"
	}
	execute(t, writable+"default_transaction_read_only=off", readOnly+`off`)
	for name, pool := range all {
		err := write(pool)
		for range pool.Stat().MaxConns() { // each of its connections may have to find out
			err = write(pool)
		}
		if err != nil {
			t.Errorf("%s, once the database can be written: %v", name, err)
		}
	}
}
