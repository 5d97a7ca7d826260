package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"rota/internal/fence"
	"rota/internal/lease"
	"rota/internal/registry"
	"rota/internal/web"
)

const (
	// startPatience is how long an unreachable database is retried at start.
	startPatience = 10 * time.Second
	// oldest is the first PostgreSQL version that will do, as server_version_num.
	oldest = 150000
)

// poolConfig parses the address of the database; empty stands for the PG* variables. The error
// never quotes a password. No statement stays prepared on a connection, as suits a pooler in transaction
// mode, unless the address says otherwise.
func poolConfig(address string) (*pgxpool.Config, error) {
	cfg, err := pgxpool.ParseConfig(address)
	if err != nil {
		var parse *pgconn.ParseConfigError
		if errors.As(err, &parse) {
			if parse.ConnString = ""; parse.Unwrap() != nil {
				return nil, fmt.Errorf("the database's address cannot be read (postgres://user@host:5432/database is its form): %w", parse.Unwrap())
			}
		}
		return nil, errors.New("the database's address cannot be read (postgres://user@host:5432/database is its form): " + wayOut(address))
	}
	if cfg.ConnConfig.ConnectTimeout == 0 {
		cfg.ConnConfig.ConnectTimeout = 5 * time.Second
	}
	if !namesExecMode(address) {
		cfg.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeCacheDescribe
	}
	kept := cfg.ConnConfig.OnPgError
	cfg.ConnConfig.OnPgError = func(conn *pgconn.PgConn, err *pgconn.PgError) bool {
		return err.Code != readOnlyTransaction && kept(conn, err)
	}
	return cfg, nil
}

// readOnlyTransaction is the SQLSTATE of what would write where nothing may be written. Whether a session may
// is settled when it begins, and stays so after the database has been made writable again, or another host
// the primary: its connection is closed, and the next one finds out anew.
const readOnlyTransaction = "25006"

// wayOut is what may be wrong with an address of which nothing may be repeated: what seems to be its port
// may be of its password.
func wayOut(address string) string {
	if u, err := url.Parse(address); err == nil && u.Port() != "" {
		if port, err := strconv.Atoi(u.Port()); err != nil || port < 1 || port > 65535 {
			return "its port must be 1 to 65535"
		}
	}
	return "in a password, write / as %2F, # as %23, ? as %3F and @ as %40"
}

// namesExecMode reports whether the address says how statements are sent.
func namesExecMode(address string) bool { return strings.Contains(address, "default_query_exec_mode") }

// openPool makes a pool of at most n connections, and connects none.
func openPool(ctx context.Context, address, appName string, n int32) (*pgxpool.Pool, error) {
	cfg, err := poolConfig(address)
	if err != nil {
		return nil, coded(exitUsage, err)
	}
	return newPool(ctx, cfg, appName, 0, n, nil)
}

// newPool makes a pool of at most so many connections, that many of which are kept however long
// they have nothing to do, with something to do on each new one. The application's name is all that
// it sets itself, for a pooler in between may refuse anything else.
func newPool(ctx context.Context, cfg *pgxpool.Config, appName string, kept, most int32, begun func(context.Context, *pgx.Conn) error) (*pgxpool.Pool, error) {
	cfg.ConnConfig.RuntimeParams["application_name"] = appName
	cfg.MaxConns, cfg.MinConns, cfg.AfterConnect = most, kept, begun
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("make a pool of connections: %w", err)
	}
	return pool, nil
}

// pools are the connections of a replica. Each kind of traffic has its own, so that jobs that
// exhaust theirs delay no renewal, no tick and no page.
type pools struct {
	lease  *pgxpool.Pool // renewals, and nothing that could hold them up
	engine *pgxpool.Pool // claims, records, and the raising of epochs
	work   *pgxpool.Pool // what jobs read and write
	page   *pgxpool.Pool // what the page and the API show, and the probes
	desk   *pgxpool.Pool // the orders that are given through them
	steer  *pgxpool.Pool // what operators ask for, whatever the others are busy with
}

// replicaConns is how many connections a replica may have: those of its pools, one that listens, and
// its witness's.
const replicaConns = 6 + 7 + 12 + 2 + 2 + 1 + 1 + 1

// openPools makes those of a replica. Where no pooler is in between, statements stay prepared, which
// spares the server their planning.
func openPools(ctx context.Context, address, owner string, pooled bool) (*pools, error) {
	base, err := poolConfig(address)
	if err != nil {
		return nil, coded(exitUsage, err)
	}
	if !pooled && !namesExecMode(address) {
		base.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeCacheStatement
	}
	var p pools
	if p.lease, err = lease.NewPool(ctx, base, owner); err != nil {
		return nil, err
	}
	for _, each := range []struct {
		pool       **pgxpool.Pool
		kept, most int32 // a term begins with a raise and, beside it, a look at what earlier ones left
		begun      func(context.Context, *pgx.Conn) error
	}{{&p.engine, 2, 7, nil}, {&p.work, 0, 12, fence.Prepare}, {&p.page, 0, 2, nil}, {&p.desk, 0, 2, nil}, {&p.steer, 0, 1, nil}} {
		if *each.pool, err = newPool(ctx, base.Copy(), lease.AppName(owner), each.kept, each.most, each.begun); err != nil {
			p.close()
			return nil, err
		}
	}
	return &p, nil
}

func (p *pools) close() {
	for _, pool := range []*pgxpool.Pool{p.steer, p.desk, p.page, p.work, p.engine, p.lease} {
		if pool != nil {
			pool.Close()
		}
	}
}

// use says how busy the connections are, for the page.
func (p *pools) use() []web.Pool {
	var all []web.Pool
	for _, each := range []struct {
		name string
		pool *pgxpool.Pool
	}{{"lease", p.lease}, {"engine", p.engine}, {"work", p.work}, {"page", p.page}, {"steer", p.steer}} {
		stat := each.pool.Stat()
		all = append(all, web.Pool{
			Name: each.name, Busy: int(stat.AcquiredConns()), Open: int(stat.TotalConns()), Most: int(stat.MaxConns()), Waits: stat.EmptyAcquireCount(),
		})
	}
	return all
}

// awaitDatabase returns once the database answers and is one that will do; one that cannot be
// reached is retried for a while.
func awaitDatabase(ctx context.Context, address string, patience time.Duration, log *slog.Logger) error {
	cfg, err := poolConfig(address)
	if err != nil {
		return coded(exitUsage, err)
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var last error
	for pause := 100 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		conn, err := pgx.ConnectConfig(ctx, cfg.ConnConfig)
		if err == nil {
			defer closeConn(conn)
			return suitable(ctx, conn)
		}
		if isAuthentication(err) {
			return fmt.Errorf("the database refuses us: %w", err)
		}
		if last == nil {
			log.Warn("database not reached, trying again", "for", registry.Span(patience), "error", err)
		}
		if last == nil || ctx.Err() == nil { // else it says no more than that the time is up
			last = err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the database was not reached within %s: %w", registry.Span(patience), last)
		case <-time.After(pause):
		}
	}
}

// behindPooler reports whether a pooler is in between: it names a process of its own when a connection
// is made, and not the server's that answers.
func behindPooler(ctx context.Context, address string) (bool, error) {
	cfg, err := poolConfig(address)
	if err != nil {
		return false, coded(exitUsage, err)
	}
	ctx, cancel := context.WithTimeout(ctx, startPatience)
	defer cancel()
	conn, err := pgx.ConnectConfig(ctx, cfg.ConnConfig)
	if err != nil {
		return false, fmt.Errorf("look for a pooler: %w", err)
	}
	defer closeConn(conn)
	pid, err := backendPID(ctx, conn)
	return pid != conn.PgConn().PID(), err
}

func backendPID(ctx context.Context, conn interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
},
) (pid uint32, err error) {
	if err := conn.QueryRow(ctx, `SELECT pg_backend_pid()`).Scan(&pid); err != nil {
		return 0, fmt.Errorf("ask which process answers: %w", err)
	}
	return pid, nil
}

// closeConn takes leave of the server, for a moment.
func closeConn(conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = conn.Close(ctx)
}

func isAuthentication(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && strings.HasPrefix(pg.Code, "28")
}

// A server is what a replica needs to know of the one it is about to use.
type server struct {
	version    string
	number     int    // server_version_num
	standby    bool   // it follows another
	readOnly   bool   // for this user, or in this database
	schemaName string // empty: the search path leads nowhere
}

const serverSQL = `SELECT current_setting('server_version'), current_setting('server_version_num')::int,
	pg_is_in_recovery(), current_setting('default_transaction_read_only')::bool, coalesce(current_schema(), '')`

func suitable(ctx context.Context, conn *pgx.Conn) error {
	var s server
	err := conn.QueryRow(ctx, serverSQL).Scan(&s.version, &s.number, &s.standby, &s.readOnly, &s.schemaName)
	if err != nil {
		return fmt.Errorf("ask the database what it is: %w", err)
	}
	return s.fault()
}

// fault refuses, by name, a server that is too old, one that cannot be written, and a search path
// that leads nowhere.
func (s server) fault() error {
	switch {
	case s.number < oldest:
		return fmt.Errorf("the database is PostgreSQL %s: 15 or newer is needed", s.version)
	case s.standby:
		return errors.New("the database is a standby and read-only: name the primary (target_session_attrs=read-write finds it among several hosts)")
	case s.readOnly:
		return errors.New("the database is read-only: default_transaction_read_only is on")
	case s.schemaName == "":
		return errors.New("the search_path leads to no schema: create one for this user, or set the role's search_path")
	}
	return nil
}

const missingRightsSQL = `SELECT t || ' (' || string_agg(r, ', ' ORDER BY r) || ')' FROM
	(VALUES ('leadership', 'SELECT'), ('leadership', 'INSERT'), ('leadership', 'UPDATE'), ('terms', 'SELECT'),
		('abilities', 'SELECT'), ('abilities', 'INSERT'), ('replicas', 'SELECT'), ('replicas', 'INSERT'), ('replicas', 'UPDATE'), ('replicas', 'DELETE'),
		('lease_epochs', 'SELECT'), ('lease_epochs', 'UPDATE'),
		('job_shards', 'SELECT'), ('job_shards', 'INSERT'), ('job_shards', 'UPDATE'),
		('progress', 'SELECT'), ('progress', 'INSERT'), ('progress', 'UPDATE'),
		('runs', 'SELECT'), ('runs', 'INSERT'), ('runs', 'UPDATE'), ('runs', 'DELETE'), ('terms', 'DELETE'), ('requests', 'DELETE'),
		('requests', 'SELECT'), ('requests', 'UPDATE'), ('pauses', 'SELECT'), ('audit', 'INSERT')) AS needed (t, r)
	WHERE to_regclass(t) IS NULL OR NOT has_table_privilege(to_regclass(t), r) GROUP BY t ORDER BY t`

// checkRights names every table that the user may not use as a replica must.
func checkRights(ctx context.Context, db *pgxpool.Pool) error {
	rows, err := db.Query(ctx, missingRightsSQL)
	if err != nil {
		return fmt.Errorf("look at the user's rights: %w", err)
	}
	missing, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return fmt.Errorf("look at the user's rights: %w", err)
	}
	if len(missing) > 0 {
		return fmt.Errorf("the database user lacks rights: %s", strings.Join(missing, "; "))
	}
	return nil
}
