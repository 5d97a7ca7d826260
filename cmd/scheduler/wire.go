package main

import (
	"fmt"
	"io"
	"net"
	"sync"
)

// A wire is the only way from one of dev's replicas to the database: a proxy on the loopback interface
// that can be cut.
type wire struct {
	listener net.Listener
	far      string // the database's address
	carrying sync.WaitGroup

	mu    sync.Mutex
	cut   bool
	over  bool
	conns map[net.Conn]struct{} // both ends of each connection that it carries
}

func newWire(far string) (*wire, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("lay a wire to the database: %w", err)
	}
	w := &wire{listener: listener, far: far, conns: map[net.Conn]struct{}{}}
	w.carrying.Go(w.accept)
	return w, nil
}

// near is the address that the replica connects to.
func (w *wire) near() string { return w.listener.Addr().String() }

// sever breaks every connection, and each one that is tried from now on.
func (w *wire) sever() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cut = true
	w.dropAll()
}

// mend lets connections through again.
func (w *wire) mend() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cut = false
}

func (w *wire) isCut() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.cut
}

// close takes the wire away, and returns once it carries nothing more.
func (w *wire) close() {
	w.mu.Lock()
	w.over = true
	w.dropAll()
	w.mu.Unlock()
	_ = w.listener.Close()
	w.carrying.Wait()
}

func (w *wire) dropAll() {
	for c := range w.conns {
		drop(c)
	}
}

// drop ends a connection with a reset, as one ends that broke: nobody takes it for a farewell.
func drop(c net.Conn) {
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = c.Close()
}

func (w *wire) accept() {
	for {
		near, err := w.listener.Accept()
		if err != nil {
			return // it is closed
		}
		w.carrying.Go(func() { w.carry(near) })
	}
}

// carry takes what comes at one end to the other, until either end closes or the wire is cut.
func (w *wire) carry(near net.Conn) {
	defer w.forget(near)
	if !w.keep(near) {
		return
	}
	far, err := net.Dial("tcp", w.far)
	if err != nil {
		return
	}
	defer w.forget(far)
	if !w.keep(far) {
		return
	}
	var back sync.WaitGroup
	back.Go(func() {
		_, _ = io.Copy(near, far)
		_ = near.Close() // ends the other direction
	})
	_, _ = io.Copy(far, near)
	_ = far.Close()
	back.Wait()
}

// keep reports whether the connection may go on.
func (w *wire) keep(c net.Conn) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.conns[c] = struct{}{}
	if w.cut || w.over {
		drop(c)
		return false
	}
	return true
}

func (w *wire) forget(c net.Conn) {
	w.mu.Lock()
	delete(w.conns, c)
	w.mu.Unlock()
	_ = c.Close()
}
