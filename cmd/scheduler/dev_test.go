package main

import (
	"strings"
	"testing"
)

func TestDevSaysHowToSteerItAndNoPassword(t *testing.T) {
	t.Parallel()
	const private = "postgres://postgres@127.0.0.1:5433/postgres?sslmode=disable"
	if said := steerHint(devConfig{}, private); !strings.Contains(said, "export DATABASE_URL='"+private+"'") || strings.Contains(said, "\n") {
		t.Errorf("%q", said)
	}
	const own = "postgres://rota:secret@db/rota"
	if said := steerHint(devConfig{url: own}, own); strings.Contains(said, "secret") || !strings.Contains(said, "export DATABASE_URL") {
		t.Errorf("%q", said)
	}
}
