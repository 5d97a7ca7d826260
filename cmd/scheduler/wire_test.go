package main

import (
	"bufio"
	"net"
	"testing"
	"time"
)

// echo is a server that says back each line.
func echo(t *testing.T) (address string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer func() { _ = c.Close() }()
				for lines := bufio.NewScanner(c); lines.Scan(); {
					if _, err := c.Write([]byte(lines.Text() + "\n")); err != nil {
						return
					}
				}
			}()
		}
	}()
	return l.Addr().String()
}

// answers says a line over the connection, and reports whether it comes back.
func answers(t *testing.T, c net.Conn) bool {
	t.Helper()
	if err := c.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Write([]byte("hello\n")); err != nil {
		return false
	}
	line, err := bufio.NewReader(c).ReadString('\n')
	return err == nil && line == "hello\n"
}

// connects reports whether a new connection over the wire answers.
func connects(t *testing.T, w *wire) bool {
	t.Helper()
	c, err := net.Dial("tcp", w.near())
	if err != nil {
		return false
	}
	defer func() { _ = c.Close() }()
	return answers(t, c)
}

func TestACutWireBreaksWhatItCarriesAndCarriesNothingNew(t *testing.T) {
	t.Parallel()
	w, err := newWire(echo(t))
	if err != nil {
		t.Fatal(err)
	}
	defer w.close()
	old, err := net.Dial("tcp", w.near())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = old.Close() }()
	if !answers(t, old) {
		t.Fatal("a whole wire carries nothing")
	}
	w.sever()
	if answers(t, old) || connects(t, w) || !w.isCut() {
		t.Error("a cut wire carries something")
	}
	w.mend()
	if answers(t, old) {
		t.Error("a broken connection came back")
	}
	if !connects(t, w) || w.isCut() {
		t.Error("a mended wire carries nothing new")
	}
}

// close returns only once nothing is carried any more.
func TestAClosedWireCarriesNothing(t *testing.T) {
	t.Parallel()
	w, err := newWire(echo(t))
	if err != nil {
		t.Fatal(err)
	}
	c, err := net.Dial("tcp", w.near())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	if !answers(t, c) {
		t.Fatal("it carries nothing")
	}
	w.close()
	if answers(t, c) {
		t.Error("it still carries something")
	}
}
