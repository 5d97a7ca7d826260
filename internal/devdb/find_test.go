package devdb

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// fake puts a server that prints the version, and an initdb, into a new directory.
func fake(t *testing.T, version string) string {
	t.Helper()
	dir := t.TempDir()
	for name, line := range map[string]string{"initdb": "", "postgres": "echo 'postgres (PostgreSQL) " + version + "'"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+line+"\n"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestAServerOnPathIsFoundThroughItsLinks(t *testing.T) {
	dir, links := fake(t, "17.2 (Debian 17.2-1)"), t.TempDir()
	if err := os.Symlink(filepath.Join(dir, "initdb"), filepath.Join(links, "initdb")); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", fake(t, "14.9")+":"+links+":"+os.Getenv("PATH"))
	got, err := Find()
	if err != nil {
		t.Fatal(err)
	}
	if want := (Binaries{Dir: resolved(t, dir), Version: "17.2"}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func resolved(t *testing.T, path string) string {
	t.Helper()
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		t.Fatal(err)
	}
	return real
}

func TestAServerThatIsTooOldIsRefusedByName(t *testing.T) {
	t.Parallel()
	err := notFound([]string{"13.4 in /usr/lib/postgresql/13/bin"})
	if !errors.Is(err, ErrNotFound) || !strings.Contains(err.Error(), "only 13.4 in /usr/lib/postgresql/13/bin, which is too old") {
		t.Errorf("got %v", err)
	}
	if lines := strings.Count(err.Error(), "\n") + 1; lines != 4 {
		t.Errorf("the message has %d lines, want 4:\n%v", lines, err)
	}
}

func TestVersions(t *testing.T) {
	t.Parallel()
	for version, want := range map[string]int{"15.18": 15, "18beta2": 18, "9.6.24": 9, "19devel": 19, "": 0} {
		if got := major(version); got != want {
			t.Errorf("major(%q) = %d, want %d", version, got, want)
		}
	}
}

func TestTheNewestOfSeveralComesFirst(t *testing.T) {
	t.Parallel()
	base := t.TempDir()
	for _, v := range []int{9, 15, 17, 16} {
		if err := os.MkdirAll(filepath.Join(base, "pg", fmt.Sprint(v), "bin"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	got := newestFirst(filepath.Join(base, "pg/*/bin"))
	for i, want := range []int{17, 16, 15, 9} {
		if got[i] != filepath.Join(base, "pg", fmt.Sprint(want), "bin") {
			t.Errorf("place %d is %s, want version %d", i, got[i], want)
		}
	}
}
