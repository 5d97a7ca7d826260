package jobs

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"rota/internal/registry"
)

func init() {
	registry.Register(registry.Job{
		Name:     "quote_watch",
		About:    "Listens to each quote feed, and says in the log when one falls silent and when it is back.",
		Schedule: registry.Continuous,
		Args:     quoteWatchArgs{Stale: 5 * time.Second, Retry: time.Second, Reload: 10 * time.Minute},
		Run:      quoteWatch,
	})
}

type quoteWatchArgs struct {
	Stale  time.Duration // a feed without a quote for so long is stale
	Retry  time.Duration // the pause before a stream that ended is opened again
	Reload time.Duration // how often the list of feeds is read
}

type feed struct{ Name, URL string }

const feedsSQL = `SELECT name, url FROM feeds ORDER BY name`

func quoteWatch(ctx context.Context, run *registry.Run) error {
	args := run.Args.(quoteWatchArgs)
	for ctx.Err() == nil {
		rows, err := run.DB.Query(ctx, feedsSQL)
		if err != nil {
			return fmt.Errorf("read feeds: %w", err)
		}
		feeds, err := pgx.CollectRows(rows, pgx.RowToStructByName[feed])
		if err != nil {
			return fmt.Errorf("read feeds: %w", err)
		}
		watching, stop := context.WithTimeout(ctx, args.Reload)
		var watches sync.WaitGroup
		for _, f := range feeds {
			watches.Go(func() { watchFeed(watching, f, args, run.Log.With("feed", f.Name)) })
		}
		draining := false
		select {
		case <-watching.Done():
		case <-run.Draining:
			draining = true
		}
		stop()
		watches.Wait()
		if draining {
			return nil
		}
	}
	return context.Cause(ctx)
}

// watchFeed returns when ctx ends. A stream that fails is opened again.
func watchFeed(ctx context.Context, f feed, args quoteWatchArgs, log *slog.Logger) {
	heard := make(chan error)
	var stream sync.WaitGroup
	stream.Go(func() {
		tell := func(err error) {
			select {
			case heard <- err:
			case <-ctx.Done():
			}
		}
		for ctx.Err() == nil {
			tell(streamQuotes(ctx, f.URL, args.Stale, func() { tell(nil) }))
			select {
			case <-time.After(args.Retry):
			case <-ctx.Done():
			}
		}
	})
	watchQuotes(ctx, heard, args.Stale, log)
	stream.Wait()
}

// watchQuotes hears nil for a quote and an error for a stream that ended. However often a feed
// is tried while it is down, it makes two lines: one when it becomes stale, one when it is back.
func watchQuotes(ctx context.Context, heard <-chan error, stale time.Duration, log *slog.Logger) {
	silence := time.NewTimer(stale)
	defer silence.Stop()
	var last error
	isStale, since := false, time.Now()
	for {
		select {
		case err := <-heard:
			if err != nil {
				last = err
				continue
			}
			if isStale {
				log.Info("feed is back", "silent", time.Since(since))
			}
			isStale, last, since = false, nil, time.Now()
			silence.Reset(stale)
		case <-silence.C:
			isStale = true
			log.Warn("feed is stale", "silent", time.Since(since), "error", last)
		case <-ctx.Done():
			return
		}
	}
}

var errSilent = errors.New("the stream is open but silent")

// streamQuotes calls quote for every quote of a stream of JSON lines, until the stream ends, is
// silent for too long, or sends what is no quote; the error says which.
func streamQuotes(ctx context.Context, url string, stale time.Duration, quote func()) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	silence := time.AfterFunc(stale, func() { cancel(errSilent) })
	defer silence.Stop()

	req, err := newGet(ctx, url)
	if err != nil {
		return err
	}
	res, err := client.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return unexpected(res)
	}
	lines := bufio.NewScanner(res.Body)
	for lines.Scan() {
		var q struct{ Symbol string }
		if err := json.Unmarshal(lines.Bytes(), &q); err != nil || q.Symbol == "" {
			return fmt.Errorf("%.80q is no quote", lines.Bytes())
		}
		silence.Reset(stale)
		quote()
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return errors.Join(errors.New("the stream ended"), lines.Err())
}
