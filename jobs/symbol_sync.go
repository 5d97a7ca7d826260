package jobs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"rota/internal/fence"
	"rota/internal/registry"
)

var (
	symbolsTable     = fence.Table{Name: "symbols", Key: []string{"venue", "symbol"}, Shard: "venue"}
	symbolListsTable = fence.Table{Name: "symbol_lists", Key: []string{"venue"}, Shard: "venue"}
)

func init() {
	registry.Register(registry.Job{
		Name:     "symbol_sync",
		About:    "Keeps the symbols of each venue as the venue lists them.",
		Schedule: registry.Cron("*/2 * * * *"),
		Timeout:  10 * time.Minute,
		Protects: []fence.Table{symbolsTable, symbolListsTable},
		Shards:   2, // by venue
		Args:     symbolSyncArgs{Timeout: 20 * time.Second, MaxBytes: 32 << 20},
		Run:      symbolSync,
	})
}

type symbolSyncArgs struct {
	Timeout  time.Duration // for the fetching of one list
	MaxBytes int64         // of one list
}

// A venue is a row of venues, with the version of the list that its symbols came from.
type venue struct{ Name, URL, Etag string }

type symbol struct {
	Symbol   string      `json:"symbol"`
	Name     string      `json:"name"`
	TickSize json.Number `json:"tick_size"` // a string or a number
}

// An address that has changed begins anew, without a version.
const venuesSQL = `
SELECT v.name, v.url, coalesce(l.etag, '') AS etag
  FROM venues v LEFT JOIN symbol_lists l ON l.venue = v.name AND l.url = v.url
 ORDER BY v.name`

// symbolSync syncs the venues that are its shard's. It goes on after one that fails, and reports all
// that did.
func symbolSync(ctx context.Context, run *registry.Run) error {
	rows, err := run.DB.Query(ctx, venuesSQL)
	if err != nil {
		return fmt.Errorf("read venues: %w", err)
	}
	venues, err := pgx.CollectRows(rows, pgx.RowToStructByName[venue])
	if err != nil {
		return fmt.Errorf("read venues: %w", err)
	}
	var failed []error
	for _, v := range venues {
		if !run.Owns(v.Name) {
			continue
		}
		err := syncVenue(ctx, run, v)
		switch {
		case errors.Is(err, fence.ErrFenced):
			return err
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil:
			failed = append(failed, fmt.Errorf("venue %s: %w", v.Name, err))
		}
	}
	return errors.Join(failed...)
}

func syncVenue(ctx context.Context, run *registry.Run, v venue) error {
	body, etag, err := fetchSymbols(ctx, v, run.Args.(symbolSyncArgs))
	if err != nil || body == nil {
		return err
	}
	listed, bad, err := parseSymbols(body)
	if err != nil {
		return err
	}
	if len(bad) > 0 {
		run.Log.Warn("list has bad entries", "venue", v.Name, "bad", len(bad), "first", bad[0].Error())
	}
	v.Etag = etag
	if err := writeSymbols(ctx, run.Fence, v, listed, len(bad) == 0); err != nil {
		return fmt.Errorf("write symbols: %w", err)
	}
	run.Log.Info("venue synced", "venue", v.Name, "symbols", len(listed))
	return nil
}

// fetchSymbols returns a venue's list and its version, or no list if that version is the one we have.
func fetchSymbols(ctx context.Context, v venue, args symbolSyncArgs) (body []byte, etag string, err error) {
	ctx, cancel := context.WithTimeout(ctx, args.Timeout)
	defer cancel()
	req, err := newGet(ctx, v.URL)
	if err != nil {
		return nil, "", err
	}
	if v.Etag != "" {
		req.Header.Set("If-None-Match", v.Etag)
	}
	res, err := client.Do(req)
	if err != nil {
		return nil, "", err
	}
	defer res.Body.Close()
	switch {
	case res.StatusCode == http.StatusNotModified && v.Etag != "":
		return nil, v.Etag, nil
	case res.StatusCode != http.StatusOK:
		return nil, "", unexpected(res)
	}
	body, err = io.ReadAll(limited(res.Body, args.MaxBytes))
	return body, printable(res.Header.Get("ETag")), err
}

// parseSymbols reads {"symbols": [{"symbol", "name", "tick_size"}, ...]}. A bad entry is noted and
// passed over. A list without any good one is an error: it would retire the whole venue.
func parseSymbols(body []byte) (listed []symbol, bad []error, err error) {
	var list struct {
		Symbols []json.RawMessage `json:"symbols"`
	}
	if err := json.Unmarshal(body, &list); err != nil {
		return nil, nil, fmt.Errorf("list: %w", err)
	}
	seen := map[string]bool{}
	for i, entry := range list.Symbols {
		var s symbol
		err := json.Unmarshal(entry, &s)
		if err == nil {
			err = s.check()
		}
		if err == nil && seen[s.Symbol] {
			err = fmt.Errorf("%q was listed before", s.Symbol)
		}
		if err != nil {
			bad = append(bad, fmt.Errorf("entry %d: %w", i, err))
			continue
		}
		seen[s.Symbol] = true
		listed = append(listed, s)
	}
	if len(listed) == 0 {
		return nil, bad, fmt.Errorf("list has no symbol (%d bad entries)", len(bad))
	}
	slices.SortFunc(listed, func(a, b symbol) int { return strings.Compare(a.Symbol, b.Symbol) })
	return listed, bad, nil
}

func (s *symbol) check() error {
	if !isName(s.Symbol) {
		return fmt.Errorf("%.40q is no symbol", s.Symbol)
	}
	s.Name = printable(s.Name)
	tick, err := decimal(s.TickSize.String())
	if err != nil {
		return fmt.Errorf("%s: tick_size: %w", s.Symbol, err)
	}
	s.TickSize = json.Number(tick)
	return nil
}

// A symbol that is as it was keeps its row as it is.
const upsertSymbolsSQL = `
INSERT INTO symbols AS s (venue, symbol, name, tick_size, epoch)
SELECT $1, f.symbol, f.name, f.tick_size, $2
  FROM jsonb_to_recordset($3) AS f(symbol text, name text, tick_size numeric)
    ON CONFLICT (venue, symbol) DO UPDATE
   SET name = EXCLUDED.name, tick_size = EXCLUDED.tick_size,
       listed_at = CASE WHEN s.retired_at IS NULL THEN s.listed_at ELSE EXCLUDED.listed_at END,
       retired_at = NULL, epoch = EXCLUDED.epoch
 WHERE s.retired_at IS NOT NULL OR (s.name, s.tick_size) IS DISTINCT FROM (EXCLUDED.name, EXCLUDED.tick_size)`

const retireSymbolsSQL = `
UPDATE symbols SET retired_at = clock_timestamp(), epoch = $2
 WHERE venue = $1 AND retired_at IS NULL
   AND symbol NOT IN (SELECT f.symbol FROM jsonb_to_recordset($3) AS f(symbol text))`

const keepListSQL = `
INSERT INTO symbol_lists (venue, url, etag, epoch) VALUES ($1, $2, $3, $4)
    ON CONFLICT (venue) DO UPDATE
   SET url = EXCLUDED.url, etag = EXCLUDED.etag, synced_at = clock_timestamp(), epoch = EXCLUDED.epoch`

// writeSymbols stores the version with the symbols, or neither: a version ahead of its symbols
// would keep them from ever being fetched. From a list that could not be read whole no symbol
// is retired, and no version is kept, so that it is fetched again.
func writeSymbols(ctx context.Context, w *fence.Writer, v venue, listed []symbol, whole bool) error {
	return w.Tx(ctx, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, upsertSymbolsSQL, v.Name, w.Epoch(), listed); err != nil {
			return err
		}
		if whole {
			if _, err := tx.Exec(ctx, retireSymbolsSQL, v.Name, w.Epoch(), listed); err != nil {
				return err
			}
		} else {
			v.Etag = ""
		}
		_, err := tx.Exec(ctx, keepListSQL, v.Name, v.URL, v.Etag, w.Epoch())
		return err
	})
}
