//go:build prove

package lease

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"

	"rota/internal/pgtest"
)

// A crowded replica has many leases, at the usual lease and renewal.
type crowded struct {
	*Elector
	stop context.CancelFunc
	done chan struct{}
	led  atomic.Int64
	at   atomic.Int64 // when the last term began, Unix nanoseconds
}

func startCrowded(t *testing.T, url, name string, lease, renew time.Duration, leases []Lease) *crowded {
	t.Helper()
	owner := NewOwner(name)
	base, err := pgxpool.ParseConfig(url)
	must(t, err)
	pool, err := NewPool(t.Context(), base, owner)
	must(t, err)
	e, err := New(pool, Config{Owner: owner, Lease: lease, Renew: renew, Metrics: prometheus.NewRegistry()})
	must(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	r := &crowded{Elector: e, stop: cancel, done: make(chan struct{})}
	go func() {
		defer close(r.done)
		defer pool.Close()
		_ = e.Run(ctx, leases, func(term *Term) {
			term.Ready()
			r.led.Add(1)
			r.at.Store(time.Now().UnixNano())
			defer r.led.Add(-1)
			select {
			case <-term.Asked():
			case <-term.Yielding():
			case <-term.Context().Done():
			}
		})
	}()
	t.Cleanup(func() { cancel(); <-r.done })
	return r
}

// awaitLong is await on a loaded machine.
func awaitLong(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !ok() && time.Now().Before(deadline); {
		time.Sleep(5 * time.Millisecond) // between two looks at something observable
	}
	await(t, what, ok)
}

// P9: the leader of 10,000 leases is told to go while two standbys wait. A few statements release
// them, and all are led again within a moment, without a heartbeat in between.
func TestProveTenThousandLeasesReleasedAtOnce(t *testing.T) {
	const n = 10_000
	url := pgtest.URL(t)
	db, err := pgx.Connect(t.Context(), url)
	must(t, err)
	defer func() { _ = db.Close(context.Background()) }()
	var leases []Lease
	for i := range n {
		leases = append(leases, Lease{Name: fmt.Sprintf("job%05d", i), Job: fmt.Sprintf("job%05d", i)})
	}
	// A renewal comes every 10 s, so that no heartbeat helps.
	first := startCrowded(t, url, "r1", 30*time.Second, 10*time.Second, leases)
	awaitLong(t, "the first leads all", func() bool { return first.led.Load() == n })
	standbys := []*crowded{startCrowded(t, url, "r2", 30*time.Second, 10*time.Second, leases), startCrowded(t, url, "r3", 30*time.Second, 10*time.Second, leases)}
	awaitLong(t, "the others hear announcements, and see each other", func() bool {
		var hints int
		must(t, db.QueryRow(t.Context(), "SELECT count(*) FROM replicas WHERE hints").Scan(&hints))
		return hints == 3
	})
	before := first.led.Load()
	began := time.Now()
	first.stop()
	defer func() { t.Logf("the others lead %d and %d in the end", standbys[0].led.Load(), standbys[1].led.Load()) }()
	awaitLong(t, "all are led again", func() bool { return standbys[0].led.Load()+standbys[1].led.Load() == n })
	took := time.Unix(0, max(standbys[0].at.Load(), standbys[1].at.Load())).Sub(began)
	<-first.done
	var gone time.Duration
	must(t, db.QueryRow(t.Context(), `SELECT max(b.acquired_at - a.ended_at) FROM terms a JOIN terms b ON b.job_name = a.job_name AND b.epoch = a.epoch + 1
		WHERE a.end_reason = 'drain'`).Scan(&gone))
	t.Logf("the first led %d; all are led again %v after it was told to go, %v at most from release to acquisition, by %d and %d", before, took, gone, standbys[0].led.Load(), standbys[1].led.Load())
	if took > 10*time.Second {
		t.Errorf("all are led again after %v", took)
	}
}

// Thirty handovers in a row without announcements, neither heard nor sent: each within the bound of
// polling, two renewal intervals.
func TestProveHandoversWithoutAnnouncements(t *testing.T) {
	db := pgtest.New(t)
	if _, err := db.Exec(t.Context(), `CREATE OR REPLACE FUNCTION rota_channel() RETURNS text LANGUAGE plpgsql AS
		$$ BEGIN RAISE 'no announcements today'; END $$`); err != nil {
		t.Fatal(err)
	}
	const renew = 500 * time.Millisecond
	var leases []Lease
	for i := range 2 {
		leases = append(leases, Lease{Name: fmt.Sprint("a", i), Job: fmt.Sprint("a", i)})
	}
	url := db.Config().ConnString()
	replicas := []*crowded{startCrowded(t, url, "r1", 3*renew, renew, leases), startCrowded(t, url, "r2", 3*renew, renew, leases)}
	await(t, "both lead one", func() bool { return replicas[0].led.Load() == 1 && replicas[1].led.Load() == 1 })
	for i := range 30 { // one or two may be made for balance instead
		name := leases[i%2].Name
		epoch := query[int64](t, db, "SELECT epoch FROM leadership WHERE job_name = $1", name)
		await(t, "it is led again", func() bool {
			for _, r := range replicas {
				if r.Hints() {
					t.Fatal("announcements arrive")
				}
				r.GiveUp(name, Reason("bench")) // it may not have been begun a moment ago
			}
			return query[bool](t, db, "SELECT epoch > $2 AND expires_at > clock_timestamp() FROM leadership WHERE job_name = $1", name, epoch)
		})
	}
	rows, err := db.Query(t.Context(), `SELECT b.acquired_at - a.ended_at FROM terms a JOIN terms b ON b.job_name = a.job_name AND b.epoch = a.epoch + 1
		WHERE a.end_reason IN ('bench', 'yield')`)
	must(t, err)
	took, err := pgx.CollectRows(rows, pgx.RowTo[time.Duration])
	must(t, err)
	slices.Sort(took)
	t.Logf("%d handovers by polling every %v: p50 %v, slowest %v", len(took), renew, took[len(took)/2], took[len(took)-1])
	if len(took) < 30 || took[len(took)-1] > 5*2*renew {
		t.Errorf("%d handovers, the slowest %v", len(took), took[len(took)-1])
	}
}
