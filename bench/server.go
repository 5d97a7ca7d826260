package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

// userHz is in what /proc counts time, on every Linux that Go runs on.
const userHz = 100

// cpu is what all processes of the server have used so far, those that have ended included.
func (w *world) cpu() (time.Duration, error) {
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return 0, err
	}
	var ticks int64
	found := false
	for _, path := range stats {
		b, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended
		}
		// The command's name, in brackets, may itself have blanks and brackets.
		fields := bytes.Fields(b[bytes.LastIndexByte(b, ')')+1:])
		field := func(number int) int64 {
			n, _ := strconv.ParseInt(string(fields[number-3]), 10, 64)
			return n
		}
		switch self, _ := strconv.Atoi(filepath.Base(filepath.Dir(path))); w.cluster.PID() {
		case self: // itself, and its children that have ended
			found = true
			ticks += field(14) + field(15) + field(16) + field(17)
		case int(field(4)):
			ticks += field(14) + field(15)
		}
	}
	if !found {
		return 0, errors.New("the server's CPU time is read from /proc, which this machine does not have")
	}
	return time.Duration(ticks) * time.Second / userHz, nil
}

// updates is how many updates of leadership there have been, and how many of them stayed on their
// page. The figures are some seconds old.
func (w *world) updates(ctx context.Context) (all, hot int64, err error) {
	err = w.db.QueryRow(ctx, "SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables WHERE relname = 'leadership'").Scan(&all, &hot)
	return all, hot, err
}

// statements is how many statements the server has executed, those of this question not counted.
func (w *world) statements(ctx context.Context) (n int64, err error) {
	err = w.db.QueryRow(ctx, "SELECT coalesce(sum(calls), 0)::bigint FROM pg_stat_statements WHERE query !~ 'pg_stat_'").Scan(&n)
	return n, err
}
