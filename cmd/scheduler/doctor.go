package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"

	"rota/internal/registry"
	"rota/internal/web"
)

// The states of a finding.
const (
	well    = "ok"
	doubt   = "warning" // it works, and could be better
	fault   = "fault"   // a replica would not work, or not safely
	unknown = "unknown" // it could not be looked at
)

// A finding is the answer to one question, and what to do about it.
type finding struct {
	Check string `json:"check"`
	State string `json:"state"`
	Found string `json:"found"`
	Fix   string `json:"fix,omitempty"`

	code int // that a fault leads to
}

func doctorCommand(env []string) *cobra.Command {
	cfg := Defaults()
	var asJSON bool
	cmd := &cobra.Command{
		Use: "doctor", Short: "Look for what would keep a replica from working here, and say what to do about it",
		Long: `Doctor looks from this host, with the settings that serve would have here: whether the database is
reached and is one that will do, what a round trip and a commit take beside the lease, the rights, the
schema, whether a pooler is in between and notifications arrive, the clocks, the room for connections,
and the page of a replica on this host. It changes nothing.

The exit code is 0 where there is no fault, warnings or not; 2 for wrong settings; 3 where the schema is
the first fault; and else 1.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := errors.Join(cfg.Validate(), requireDatabase(cfg, env)); err != nil {
				return coded(exitUsage, err)
			}
			found := examine(cmd.Context(), cfg)
			worst := firstFault(found)
			if asJSON {
				if err := printJSON(cmd.OutOrStdout(), map[string]any{"well": worst == nil, "findings": found}); err != nil {
					return err
				}
			} else if err := printFindings(cmd.OutOrStdout(), found); err != nil {
				return err
			}
			if worst != nil {
				return coded(worst.code, fmt.Errorf("%s: %s", worst.Check, worst.Found))
			}
			return nil
		},
	}
	serveFlags(cmd.Flags(), &cfg)
	jsonFlag(cmd, &asJSON)
	return cmd
}

func firstFault(found []finding) *finding {
	for i := range found {
		if found[i].State == fault {
			return &found[i]
		}
	}
	return nil
}

func printFindings(out io.Writer, found []finding) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, f := range found {
		fmt.Fprintf(w, "%s\t%s\t%s\n", f.State, f.Check, plain(f.Found, 300))
		if f.Fix != "" {
			fmt.Fprintf(w, "\t\t  -> %s\n", f.Fix)
		}
	}
	return w.Flush()
}

// examine asks all questions; what cannot be asked without a database is left out where there is none.
func examine(ctx context.Context, cfg Config) []finding {
	found := []finding{{Check: "settings", State: well, Found: "can be served with"}}
	conn, reach := reachDatabase(ctx, cfg)
	found = append(found, reach)
	if conn != nil {
		defer closeConn(conn)
		p := &patient{cfg: cfg, conn: conn}
		for _, look := range []func(context.Context) finding{
			p.server, p.schema, p.rights, p.latency, p.commit, p.durable, p.pooler, p.notify, p.clock, p.room,
		} {
			within, cancel := context.WithTimeout(ctx, 10*time.Second)
			found = append(found, look(within))
			cancel()
		}
	}
	return append(found, pageFinding(ctx, cfg))
}

// A patient is a database that answers.
type patient struct {
	cfg  Config
	conn *pgx.Conn
}

func reachDatabase(ctx context.Context, cfg Config) (*pgx.Conn, finding) {
	f := finding{Check: "reach", State: fault, code: exitFailed}
	pool, err := poolConfig(cfg.DatabaseURL)
	if err != nil {
		f.Found, f.Fix, f.code = err.Error(), "mend DATABASE_URL", exitUsage
		return nil, f
	}
	begun := time.Now()
	conn, err := pgx.ConnectConfig(ctx, pool.ConnConfig)
	if err == nil {
		c := pool.ConnConfig
		return conn, finding{Check: "reach", State: well, Found: fmt.Sprintf("%s, port %d, database %s as %s, connected in %s", c.Host, c.Port, c.Database, c.User, span(time.Since(begun)))}
	}
	f.Found = lines(err)[0]
	var dns *net.DNSError
	switch {
	case isAuthentication(err):
		f.Fix = "mend the user and password in DATABASE_URL (or PGUSER, PGPASSWORD, PGPASSFILE), and what pg_hba.conf allows from this host"
	case errors.As(err, &dns):
		f.Fix = "the host's name is not known here: mend the address, or the name service"
	case strings.Contains(f.Found, "tls"), strings.Contains(f.Found, "certificate"):
		f.Fix = "sslmode and sslrootcert in DATABASE_URL must fit what the server offers"
	case strings.Contains(f.Found, "does not exist"):
		f.Fix = "create the database, or mend its name in DATABASE_URL"
	default:
		f.Fix = "look at the address, the network between, and whether the server runs and listens there"
	}
	return nil, f
}

func (p *patient) unknown(check string, err error) finding {
	return finding{Check: check, State: unknown, Found: "could not be looked at: " + lines(err)[0]}
}

func (p *patient) server(ctx context.Context) finding {
	var s server
	err := p.conn.QueryRow(ctx, serverSQL).Scan(&s.version, &s.number, &s.standby, &s.readOnly, &s.schemaName)
	if err != nil {
		return p.unknown("server", err)
	}
	if err := s.fault(); err != nil {
		return finding{Check: "server", State: fault, Found: err.Error(), Fix: "use a database that will do", code: exitFailed}
	}
	return finding{Check: "server", State: well, Found: fmt.Sprintf("PostgreSQL %s, can be written, schema %s", s.version, s.schemaName)}
}

func (p *patient) schema(ctx context.Context) finding {
	versions, err := versionsOf(ctx, p.conn)
	if err != nil {
		return p.unknown("schema", err)
	}
	var current []string
	for _, v := range versions {
		said := fmt.Sprintf("%s is at version %d, this binary knows %d", v.Schema, v.Database, v.Binary)
		switch v.State() {
		case "older":
			f := finding{Check: "schema", State: doubt, Found: said, Fix: "serve brings it up to date at its start; or run: scheduler migrate up"}
			if p.cfg.Migrate != migrateAuto {
				f.State, f.code, f.Fix = fault, exitSchema, "run, as the schema's owner: scheduler migrate up"
			}
			return f
		case "newer":
			return finding{Check: "schema", State: fault, Found: said, Fix: "run the newer binary", code: exitSchema}
		}
		current = append(current, fmt.Sprintf("%s %d", v.Schema, v.Database))
	}
	return finding{Check: "schema", State: well, Found: "up to date: " + strings.Join(current, ", ")}
}

const mayCreateSQL = `SELECT has_schema_privilege(current_schema(), 'CREATE')`

func (p *patient) rights(ctx context.Context) finding {
	var tables *string
	if err := p.conn.QueryRow(ctx, `SELECT to_regclass('leadership')::text`).Scan(&tables); err != nil {
		return p.unknown("rights", err)
	}
	if tables == nil {
		var may bool
		if err := p.conn.QueryRow(ctx, mayCreateSQL).Scan(&may); err != nil {
			return p.unknown("rights", err)
		}
		if !may {
			return finding{
				Check: "rights", State: fault, Found: "there are no tables yet, and this user may create none", code: exitFailed,
				Fix: "migrate as the schema's owner (scheduler migrate up), and serve with --migrate=check; deploy/sql/roles.sql has the roles",
			}
		}
		return finding{Check: "rights", State: well, Found: "there are no tables yet, and this user may create them"}
	}
	rows, err := p.conn.Query(ctx, missingRightsSQL)
	if err != nil {
		return p.unknown("rights", err)
	}
	missing, err := pgx.CollectRows(rows, pgx.RowTo[string])
	switch {
	case err != nil:
		return p.unknown("rights", err)
	case len(missing) > 0:
		return finding{
			Check: "rights", State: fault, Found: "missing: " + strings.Join(missing, "; "), code: exitFailed,
			Fix: "grant them; deploy/sql/roles.sql has what a replica needs",
		}
	}
	return finding{Check: "rights", State: well, Found: "all that a replica needs"}
}

// times runs f so often, and returns how long the middle one and the slowest took.
func times(n int, f func() error) (median, slowest time.Duration, err error) {
	took := make([]time.Duration, n)
	for i := range took {
		begun := time.Now()
		if err := f(); err != nil {
			return 0, 0, err
		}
		took[i] = time.Since(begun)
	}
	slices.Sort(took)
	return took[n/2], took[n-1], nil
}

func (p *patient) latency(ctx context.Context) finding {
	median, slowest, err := times(20, func() error { return p.conn.Ping(ctx) })
	if err != nil {
		return p.unknown("latency", err)
	}
	f := finding{Check: "latency", State: well, Found: fmt.Sprintf("a round trip takes %s, at most %s of 20", span(median), span(slowest))}
	if slowest > p.cfg.Renew/5 {
		f.State, f.Fix = doubt, "that is much of a renewal interval: put replicas nearer to the database, or lengthen --lease and --renew"
	}
	return f
}

// commit is the lease against the measured time of what a heartbeat does: a commit that is on disk.
func (p *patient) commit(ctx context.Context) finding {
	median, slowest, err := times(10, func() error {
		return pgx.BeginFunc(ctx, p.conn, func(tx pgx.Tx) error {
			_, err := tx.Exec(ctx, `SELECT set_config('synchronous_commit', 'on', true), pg_current_xact_id()`)
			return err
		})
	})
	if err != nil {
		return p.unknown("commit", err)
	}
	f := finding{Check: "commit", State: well, Found: fmt.Sprintf(
		"a commit takes %s, at most %s of 10; a heartbeat may take %s, the lease is %s", span(median), span(slowest), registry.Span(p.cfg.Renew*4/5), registry.Span(p.cfg.Lease))}
	switch {
	case slowest > p.cfg.Renew*4/5:
		f.State, f.code = fault, exitFailed
		f.Fix = "heartbeats would time out: look at the database's disk and its synchronous standbys, or lengthen --lease and --renew"
	case slowest > p.cfg.Renew/5:
		f.State, f.Fix = doubt, "look at the database's disk and its synchronous standbys, or lengthen --lease and --renew"
	}
	return f
}

func (p *patient) durable(ctx context.Context) finding {
	var fsync, pages string
	err := p.conn.QueryRow(ctx, `SELECT current_setting('fsync'), current_setting('full_page_writes')`).Scan(&fsync, &pages)
	switch {
	case err != nil:
		return p.unknown("durability", err)
	case fsync != "on" || pages != "on":
		return finding{
			Check: "durability", State: doubt, Found: fmt.Sprintf("fsync is %s, full_page_writes is %s", fsync, pages),
			Fix: "after a crash of such a server an epoch may be given out twice: switch both on, unless it is for tests",
		}
	}
	return finding{Check: "durability", State: well, Found: "a commit that was answered is on disk"}
}

func (p *patient) clock(ctx context.Context) finding {
	sent := time.Now()
	var now time.Time
	if err := p.conn.QueryRow(ctx, `SELECT clock_timestamp()`).Scan(&now); err != nil {
		return p.unknown("clock", err)
	}
	trip := time.Since(sent)
	offset := now.Sub(sent.Add(trip / 2))
	f := finding{Check: "clock", State: well, Found: fmt.Sprintf("the database's is %s ahead of this host's, give or take %s", span(offset), span(trip/2))}
	if offset < 0 {
		f.Found = fmt.Sprintf("the database's is %s behind this host's, give or take %s", span(-offset), span(trip/2))
	}
	if offset.Abs() > p.cfg.Lease/4 {
		f.State, f.Fix = doubt, "leases and ticks go by the database's clock alone, but logs and what jobs read of the time are off: mend the time synchronisation of the one that is wrong"
	}
	return f
}

const roomSQL = `SELECT current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int,
	(SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend')`

func (p *patient) room(ctx context.Context) finding {
	var most, used int
	if err := p.conn.QueryRow(ctx, roomSQL).Scan(&most, &used); err != nil {
		return p.unknown("connections", err)
	}
	f := finding{Check: "connections", State: well, Found: fmt.Sprintf("%d of %d are in use, a replica takes up to %d", used, most, replicaConns)}
	if most-used < replicaConns {
		f.State, f.Fix = doubt, "raise max_connections, or put a pooler in between"
	}
	return f
}

// pageFinding asks the replica that the settings say is on this host.
func pageFinding(ctx context.Context, cfg Config) finding {
	host, _, _ := net.SplitHostPort(cfg.Listen)
	ip := net.ParseIP(host)
	where := cfg.Listen
	if host == "localhost" || ip != nil && ip.IsLoopback() {
		where += ", which only this host reaches; --listen :8080 is for all"
		if cfg.Auth == web.AuthNone {
			where += "; whoever does may do everything, so behind a proxy use --auth"
		}
	}
	err := health(ctx, io.Discard, cfg.Listen, "readyz")
	if err == nil {
		return finding{Check: "page", State: well, Found: "a replica is ready at " + where}
	}
	var refused *net.OpError
	if errors.As(err, &refused) {
		return finding{
			Check: "page", State: unknown, Found: "no replica answers on this host at " + where,
			Fix: "none, if there should be none here; else start one (scheduler serve), or name its address with --listen",
		}
	}
	return finding{Check: "page", State: doubt, Found: "the replica at " + where + " is not ready: " + lines(err)[0], Fix: "its log says more"}
}
