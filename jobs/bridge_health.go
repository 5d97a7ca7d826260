package jobs

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"rota/internal/fence"
	"rota/internal/registry"
)

var bridgeStatusTable = fence.Table{Name: "bridge_status", Key: []string{"bridge_id"}, Stamp: "checked_at"}

func init() {
	registry.Register(registry.Job{
		Name:     "bridge_health",
		About:    "Pings every bridge, and writes whether it is up and how fast it answers.",
		Schedule: registry.Every(3 * time.Second),
		Timeout:  30 * time.Second,
		Protects: []fence.Table{bridgeStatusTable},
		Args:     bridgeHealthArgs{Timeout: 2 * time.Second, Parallel: 32},
		Run:      bridgeHealth,
	})
}

type bridgeHealthArgs struct {
	Timeout  time.Duration // how long a bridge that has no limit of its own may take to answer
	Parallel int           // how many are pinged at a time
}

type bridge struct {
	ID        string
	Kind      string
	Address   string
	TimeoutMS *int
}

type bridgeStatus struct {
	BridgeID  string   `db:"bridge_id"`
	Health    string   `db:"health"`
	Reason    string   `db:"reason"`
	LatencyMS *float64 `db:"latency_ms"`
}

const bridgesSQL = `SELECT id, kind, address, timeout_ms FROM bridges ORDER BY id`

func bridgeHealth(ctx context.Context, run *registry.Run) error {
	args := run.Args.(bridgeHealthArgs)
	rows, err := run.DB.Query(ctx, bridgesSQL)
	if err != nil {
		return fmt.Errorf("read bridges: %w", err)
	}
	bridges, err := pgx.CollectRows(rows, pgx.RowToStructByName[bridge])
	if err != nil {
		return fmt.Errorf("read bridges: %w", err)
	}
	found := pingBridges(ctx, bridges, args)
	if ctx.Err() != nil {
		// The pings failed because this run ended, which says nothing of the bridges.
		return context.Cause(ctx)
	}
	return run.Fence.Upsert(ctx, bridgeStatusTable, found)
}

// pingBridges returns the status of each bridge, in their order.
func pingBridges(ctx context.Context, bridges []bridge, args bridgeHealthArgs) []bridgeStatus {
	found := make([]bridgeStatus, len(bridges))
	var pings errgroup.Group
	pings.SetLimit(max(1, args.Parallel))
	for i, b := range bridges {
		pings.Go(func() error {
			limit := args.Timeout
			if b.TimeoutMS != nil {
				limit = time.Duration(*b.TimeoutMS) * time.Millisecond
			}
			found[i] = pingBridge(ctx, b, limit)
			return nil
		})
	}
	_ = pings.Wait() // no ping fails
	return found
}

// pingBridge never fails: a bridge that does not answer well and in time is DOWN, with the reason.
func pingBridge(ctx context.Context, b bridge, limit time.Duration) bridgeStatus {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	began := time.Now()
	answered, err := dialBridge(ctx, b)
	latency := float64(time.Since(began).Microseconds()) / 1000

	status := bridgeStatus{BridgeID: b.ID, Health: "UP"}
	if answered {
		status.LatencyMS = &latency
	}
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		status.Health, status.Reason = "DOWN", fmt.Sprintf("no answer within %v", limit)
	case err != nil:
		status.Health, status.Reason = "DOWN", printable(err.Error())
	}
	return status
}

// bridgeClient takes a redirect for what it is: an answer, and not the bridge's own health.
var bridgeClient = &http.Client{
	Transport:     client.Transport,
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
}

// dialBridge reports whether the bridge answered at all, and what was wrong.
func dialBridge(ctx context.Context, b bridge) (answered bool, err error) {
	if b.Kind == "tcp" {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", b.Address)
		if err != nil {
			return false, err
		}
		return true, conn.Close()
	}
	req, err := newGet(ctx, b.Address)
	if err != nil {
		return false, err
	}
	res, err := bridgeClient.Do(req)
	if err != nil {
		return false, err
	}
	defer res.Body.Close()
	if res.StatusCode < 200 || res.StatusCode > 299 {
		return true, unexpected(res)
	}
	return true, nil
}
