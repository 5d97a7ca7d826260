package main

import (
	"context"
	"errors"
	"net"
	"sync"
)

// A wire is a replica's way to the database.
type wire struct {
	mu    sync.Mutex
	cut   bool
	conns []net.Conn
}

func (w *wire) dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.cut {
		return nil, errors.Join(errors.New("the wire is cut"), conn.Close())
	}
	w.conns = append(w.conns, conn)
	return conn, nil
}

// sever closes every connection, and lets no other come about until restore.
func (w *wire) sever() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cut = true
	for _, conn := range w.conns {
		_ = conn.Close() // most have been closed before
	}
	w.conns = nil
}

func (w *wire) restore() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cut = false
}
