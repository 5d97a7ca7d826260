//go:build prove

package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"rota/internal/fence"
	"rota/internal/pgtest"
	"rota/internal/registry"
)

const resizedKeys = 60

var partsTable = fence.Table{Name: "parts", Key: []string{"key"}, Shard: "key"}

func init() {
	for _, shards := range []int{4, 6} {
		name := fmt.Sprintf("parts%d", shards)
		testJobs[name] = append(testJobs[name], registry.Job{
			Name: "parts", Schedule: registry.Every(time.Second), Shards: shards, Missed: registry.RunAll, Overlap: registry.Queue,
			Protects: []fence.Table{partsTable}, Run: writeParts,
		})
	}
}

// writeParts writes the keys that are its shard's, a few at a time, so that it is in the middle of
// them whatever happens.
func writeParts(ctx context.Context, run *registry.Run) error {
	type part struct {
		Key  string    `db:"key"`
		Tick time.Time `db:"tick"`
		Of   int       `db:"of"`
	}
	var rows []part
	for i := range resizedKeys {
		if key := fmt.Sprintf("key %d", i); run.Owns(key) {
			rows = append(rows, part{key, run.Tick, run.Of})
		}
	}
	for len(rows) > 0 {
		n := min(4, len(rows))
		if err := run.Fence.Upsert(ctx, partsTable, rows[:n]); err != nil {
			return err
		}
		rows = rows[n:]
		select {
		case <-time.After(rand.N(60 * time.Millisecond)):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// Every accepted write is noted by the transaction that makes it, and every acquisition looks at the
// leases that are led.
const partsSQL = `
CREATE TABLE parts (key text PRIMARY KEY, tick timestamptz NOT NULL, "of" integer NOT NULL);
SELECT fence_protect('parts');
CREATE TABLE accepted (id bigserial, key text, epoch bigint, tick timestamptz, "of" integer, at timestamptz DEFAULT clock_timestamp());
CREATE FUNCTION note_part() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    IF TG_OP = 'INSERT' OR NEW.tick <> OLD.tick OR NEW."of" <> OLD."of" THEN
        INSERT INTO accepted (key, epoch, tick, "of") VALUES (NEW.key, NEW.epoch, NEW.tick, NEW."of");
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER note_part AFTER INSERT OR UPDATE ON parts FOR EACH ROW EXECUTE FUNCTION note_part();
CREATE TABLE violations (what text);
CREATE FUNCTION note_lease() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    INSERT INTO violations
    SELECT format('%s of epoch %s is acquired while %s of epoch %s is led', NEW.job_name, NEW.epoch, l.job_name, l.epoch)
      FROM leadership l
     WHERE l.job_name LIKE 'parts%' AND l.job_name <> NEW.job_name AND l.owner <> '' AND l.expires_at > clock_timestamp()
       AND (l.epoch >= NEW.epoch AND l.xmin <> pg_current_xact_id()::xid OR l.epoch = NEW.epoch OR split_part(l.job_name, 'of', 2) <> split_part(NEW.job_name, 'of', 2));
    RETURN NULL;
END $$;
CREATE FUNCTION note_taken() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    INSERT INTO violations SELECT format('%s of epoch %s is taken from %s while it is led', OLD.job_name, OLD.epoch, OLD.owner);
    RETURN NULL;
END $$;
CREATE TRIGGER note_taken AFTER UPDATE ON leadership FOR EACH ROW
    WHEN (NEW.epoch <> OLD.epoch AND OLD.owner <> '' AND OLD.expires_at > clock_timestamp() AND OLD.job_name LIKE 'parts%') EXECUTE FUNCTION note_taken();
CREATE TRIGGER note_lease AFTER UPDATE ON leadership FOR EACH ROW
    WHEN (NEW.epoch <> OLD.epoch AND NEW.owner <> '' AND NEW.job_name LIKE 'parts%') EXECUTE FUNCTION note_lease()`

// A write by a superseded term is one that was accepted when a later term of a lease that owns its
// key had begun; every such beginning waits for the writes under way.
const supersededSQL = `
SELECT count(*) FROM accepted a
 WHERE EXISTS (SELECT FROM terms t
                WHERE t.epoch > a.epoch AND t.acquired_at <= a.at
                  AND t.job_name = format('parts.%sof%s', rota_shard(a.key, substring(t.job_name FROM 'of(\d+)$')::integer), substring(t.job_name FROM 'of(\d+)$')))
    OR EXISTS (SELECT FROM accepted b WHERE b.key = a.key AND b.id < a.id AND b.epoch > a.epoch)`

// P1, P2, P3, P7: a job is resized from four shards to six and back by rolling deploys, in which one
// replica is killed, while every shard writes. No write by a superseded term is accepted, no two
// leases are led under one epoch, nor of two counts at once; in the end every key has an owner, and
// none has missed a tick.
func TestProveResizeLosesNeitherOrderNorKeyNorTick(t *testing.T) {
	url, args := pgtest.URL(t), withoutOurs(t)
	db := lookAt(t, url)
	if _, err := db.Exec(t.Context(), partsSQL); err != nil {
		t.Fatal(err)
	}
	start := func(shards int) *proc { return launch(t, url, fmt.Sprintf("parts%d", shards), args...) }
	led := func(shards int) {
		t.Helper()
		eventually(t, 20*time.Second, fmt.Sprintf("all of %d shards are led, and each key is written", shards), func() bool {
			return db.number(`SELECT count(*) FROM leadership WHERE job_name LIKE 'parts.%of' || $1 AND owner <> '' AND expires_at > clock_timestamp()`, fmt.Sprint(shards)) == shards &&
				db.number(`SELECT count(*) FROM parts WHERE "of" = $1`, shards) == resizedKeys
		})
	}
	var replicas []*proc
	for range 3 {
		replicas = append(replicas, start(4))
	}
	led(4)
	first := db.now().Truncate(time.Second).Add(time.Second)

	deploy := func(shards int, how ...syscall.Signal) {
		t.Helper()
		for i := range replicas {
			replicas[i].send(how[i])
			<-replicas[i].gone
			replicas[i] = start(shards).serving()
		}
		led(shards)
	}
	deploy(6, syscall.SIGTERM, syscall.SIGTERM, syscall.SIGTERM)
	deploy(4, syscall.SIGTERM, syscall.SIGKILL, syscall.SIGTERM)
	last := db.now().Truncate(time.Second)
	eventually(t, 20*time.Second, "each shard is past the last tick", func() bool {
		return db.number(`SELECT count(*) FROM progress WHERE lease LIKE 'parts.%of4' AND last_tick > $1`, last) == 4 &&
			db.number(`SELECT count(*) FROM runs WHERE job = 'parts' AND tick <= $1 AND ended_at IS NULL`, last) == 0
	})

	if n := db.number(supersededSQL); n != 0 {
		t.Errorf("P3: %d writes by superseded terms were accepted", n)
	}
	violations, err := db.Query(t.Context(), `SELECT what FROM violations`)
	if err != nil {
		t.Fatal(err)
	}
	wrong, err := pgx.CollectRows(violations, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	for _, what := range wrong {
		t.Errorf("P1, P2: %s", what)
	}
	const skippedSQL = `
SELECT k || ' at ' || tick FROM generate_series(0, $3 - 1) AS k, generate_series($1::timestamptz, $2::timestamptz, interval '1 second') AS tick
 WHERE NOT EXISTS (SELECT FROM accepted a WHERE a.key = 'key ' || k AND a.tick = tick)`
	rows, err := db.Query(t.Context(), skippedSQL, first, last, resizedKeys)
	if err != nil {
		t.Fatal(err)
	}
	skipped, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	for i, what := range skipped {
		if i < 10 {
			t.Errorf("P7: a tick was skipped: key %s", what)
		}
	}
	writes, twice := db.number(`SELECT count(*) FROM accepted`), db.number(`SELECT count(*) FROM (SELECT FROM accepted GROUP BY key, tick HAVING count(*) > 1) AS d`)
	t.Logf("%d writes of %d keys at %.0f ticks, of which %d were done again; %d terms; generation %d; %d skipped",
		writes, resizedKeys, last.Sub(first).Seconds()+1, twice, db.number(`SELECT count(*) FROM terms WHERE job_name LIKE 'parts.%'`),
		db.number(`SELECT generation FROM job_shards WHERE job = 'parts'`), len(skipped))
}
