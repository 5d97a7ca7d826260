package devdb

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
)

// oldest is the first major version of PostgreSQL that Rota runs on.
const oldest = 15

// Binaries is a directory that holds initdb and postgres of one version.
type Binaries struct {
	Dir     string
	Version string // as the server prints it, such as "15.18"
}

// ErrNotFound is what Find's error wraps when this machine has no PostgreSQL
// server that is new enough.
var ErrNotFound = errors.New("no PostgreSQL server of version 15 or newer on this machine")

// Find returns the first PostgreSQL server of version 15 or newer on this
// machine: on PATH, where pg_config points, and where the packages of the usual
// systems put it. The error is a message of four lines that names the way out.
func Find() (Binaries, error) {
	var old []string
	for _, dir := range candidates() {
		version, err := serverVersion(dir)
		if err != nil {
			continue
		}
		if major(version) >= oldest {
			return Binaries{Dir: dir, Version: version}, nil
		}
		old = append(old, fmt.Sprintf("%s in %s", version, dir))
	}
	return Binaries{}, notFound(old)
}

func notFound(old []string) error {
	found := "found none"
	if len(old) > 0 {
		found = "found only " + strings.Join(old, ", ") + ", which is too old"
	}
	return fmt.Errorf(`%w
looked on PATH, in pg_config --bindir, /usr/lib/postgresql, /usr/pgsql-*, Homebrew and Postgres.app; %s
install one: sudo apt-get install postgresql | sudo dnf install postgresql-server | sudo apk add postgresql | brew install postgresql
or set DATABASE_URL to a database that you have`, ErrNotFound, found)
}

// candidates lists the directories to look in, the best first, each once.
func candidates() []string {
	var dirs []string
	for _, dir := range filepath.SplitList(os.Getenv("PATH")) {
		// A link on PATH says where the server is; its siblings are there, not here.
		if real, err := filepath.EvalSymlinks(filepath.Join(dir, "initdb")); err == nil {
			dirs = append(dirs, filepath.Dir(real))
		}
	}
	if out, err := exec.Command("pg_config", "--bindir").Output(); err == nil {
		dirs = append(dirs, strings.TrimSpace(string(out)))
	}
	for _, pattern := range []string{
		"/usr/lib/postgresql/*/bin",     // Debian, Ubuntu
		"/usr/pgsql-*/bin",              // the PostgreSQL project's RPMs
		"/usr/libexec/postgresql*",      // Alpine
		"/opt/homebrew/opt/postgresql*", // Homebrew: Apple silicon, Intel, Linux
		"/usr/local/opt/postgresql*",
		"/home/linuxbrew/.linuxbrew/opt/postgresql*",
		"/Applications/Postgres.app/Contents/Versions/*/bin",
	} {
		dirs = append(dirs, newestFirst(pattern)...)
	}
	seen := map[string]bool{}
	return slices.DeleteFunc(dirs, func(dir string) bool {
		again := seen[dir]
		seen[dir] = true
		return again
	})
}

func newestFirst(pattern string) []string {
	dirs, err := filepath.Glob(pattern)
	if err != nil {
		panic(err) // only for a pattern that does not parse
	}
	if strings.Contains(pattern, "/opt/postgresql") {
		for i := range dirs {
			dirs[i] = filepath.Join(dirs[i], "bin")
		}
	}
	slices.SortStableFunc(dirs, func(a, b string) int { return lastNumber(b) - lastNumber(a) })
	return dirs
}

// lastNumber is the last whole number in a path, which is where package
// managers put the major version, or 0.
func lastNumber(path string) int {
	fields := strings.FieldsFunc(path, func(r rune) bool { return r < '0' || r > '9' })
	if len(fields) == 0 {
		return 0
	}
	n, err := strconv.Atoi(fields[len(fields)-1])
	if err != nil {
		return 0
	}
	return n
}

// serverVersion asks the server in dir which version it is. A directory without
// initdb beside it is of no use, and is an error too.
func serverVersion(dir string) (string, error) {
	if _, err := exec.LookPath(filepath.Join(dir, "initdb")); err != nil {
		return "", fmt.Errorf("look for initdb: %w", err)
	}
	out, err := exec.Command(filepath.Join(dir, "postgres"), "--version").Output()
	if err != nil {
		return "", fmt.Errorf("ask postgres for its version: %w", err)
	}
	// "postgres (PostgreSQL) 15.18 (Debian 15.18-1)", or "... 18beta2".
	_, rest, ok := strings.Cut(string(out), "(PostgreSQL) ")
	fields := strings.Fields(rest)
	if !ok || len(fields) == 0 {
		return "", fmt.Errorf("read the version in %q", out)
	}
	return fields[0], nil
}

func major(version string) int {
	digits := strings.IndexFunc(version, func(r rune) bool { return r < '0' || r > '9' })
	if digits < 0 {
		digits = len(version)
	}
	n, err := strconv.Atoi(version[:digits])
	if err != nil {
		return 0
	}
	return n
}

// hasLibrary reports whether the server can load the named library, so that a
// package without contrib modules does not keep it from starting.
func (b Binaries) hasLibrary(name string) bool {
	suffixes := []string{".so"}
	if runtime.GOOS == "darwin" {
		suffixes = []string{".dylib", ".so"} // .dylib since 16
	}
	dirs := []string{
		filepath.Join(b.Dir, "../lib"),
		filepath.Join(b.Dir, "../lib/postgresql"),
		filepath.Join(b.Dir, "../lib/pgsql"),
	}
	if out, err := exec.Command(filepath.Join(b.Dir, "pg_config"), "--pkglibdir").Output(); err == nil {
		dirs = append(dirs, strings.TrimSpace(string(out)))
	}
	for _, dir := range dirs {
		for _, suffix := range suffixes {
			if _, err := os.Stat(filepath.Join(dir, name+suffix)); err == nil {
				return true
			}
		}
	}
	return false
}
