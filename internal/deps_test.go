package internal_test

import (
	"encoding/json"
	"go/parser"
	"go/token"
	"io/fs"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// imports is the whole of what each package may import of ours: an import is a
// permission, and is given here. docs/design.md has the reasons.
var imports = map[string][]string{
	"internal/fence":    {},
	"internal/cron":     {},
	"internal/devdb":    {},
	"migrations":        {},
	"jobs/migrations":   {},
	"internal/lease":    {"internal/fence"},
	"internal/registry": {"internal/cron", "internal/fence"},
	"internal/control":  {"internal/lease", "internal/registry"},
	"internal/scheduler": {
		"internal/control", "internal/lease", "internal/registry", "internal/fence",
	},
	"internal/status": {"internal/registry"},
	"internal/web":    {"internal/status", "internal/control", "internal/registry"}, // registry: the jobs' own words
	"jobs":            {"internal/registry", "internal/fence"},
	"cmd/scheduler": {
		"internal/control", "internal/cron", "internal/devdb", "internal/fence", "internal/lease", "internal/registry",
		"internal/scheduler", "internal/status", "internal/web", "jobs", "jobs/migrations", "migrations",
	},

	// For tests alone.
	"internal/pgtest": {"internal/devdb", "migrations", "jobs/migrations"},
	"internal/jobtest": {
		"internal/fence", "internal/lease", "internal/pgtest", "internal/registry", "internal/scheduler",
	},

	// Small programs that the Makefile runs.
	"internal/devdb/which": {"internal/devdb"},
	"internal/pgtest/with": {"internal/devdb", "internal/pgtest"},
}

// testPackages may be imported by every test, and by nothing that is shipped.
var testPackages = []string{"internal/pgtest", "internal/jobtest"}

// direct are the modules of others that go.mod may name as direct requirements.
var direct = []string{
	"github.com/go-chi/chi/v5",            // routes
	"github.com/goccy/go-yaml",            // the jobs file, with the lines of what is wrong in it
	"github.com/google/go-cmp",            // tests: differences
	"github.com/google/uuid",              // owners
	"github.com/jackc/pgx/v5",             // PostgreSQL
	"github.com/pressly/goose/v3",         // migrations
	"github.com/prometheus/client_golang", // metrics
	"github.com/robfig/cron/v3",           // the parser of cron specs
	"github.com/spf13/cobra",              // commands
	"github.com/spf13/pflag",              // their flags; cobra brings it along
	"go.uber.org/goleak",                  // tests: goroutines without an owner
	"golang.org/x/crypto",                 // bcrypt, of the passwords that enter the page
	"golang.org/x/sync",                   // groups of goroutines
	"golang.org/x/sys",                    // the clock that runs while a machine sleeps
}

// otherModules have a go.mod of their own, so that what they need stays out of ours.
var otherModules = []string{"bench", "deploy/check", "internal/web/browser", "tools"}

// root is the top of the repository, seen from this test.
const root = ".."

// walk calls fn with the slash-separated path of each file of the repository,
// leaving out the other modules' unless all is set.
func walk(t *testing.T, all bool, fn func(file string)) {
	t.Helper()
	err := filepath.WalkDir(root, func(file string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, file)
		if err != nil {
			return err
		}
		rel = filepath.ToSlash(rel)
		name := entry.Name()
		if entry.IsDir() {
			hidden := rel != "." && strings.HasPrefix(name, ".")
			if hidden || name == "testdata" || !all && slices.Contains(otherModules, rel) {
				return filepath.SkipDir
			}
			return nil
		}
		fn(rel)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestImportsAreThoseOfTheTable(t *testing.T) {
	t.Parallel()
	walk(t, false, func(file string) {
		if path.Ext(file) != ".go" {
			return
		}
		dir := path.Dir(file)
		may, known := imports[dir]
		isTest := strings.HasSuffix(file, "_test.go")
		if !known && !isTest {
			t.Errorf("%s: package %s is not in the table", file, dir)
			return
		}
		for _, imported := range ours(t, file) {
			switch {
			case imported == dir && isTest: // an external test of its own package
			case slices.Contains(may, imported):
			case isTest && slices.Contains(testPackages, imported):
			default:
				t.Errorf("%s imports %s, which the table does not permit", file, imported)
			}
		}
	})
}

// ours lists what a file imports of this module, whatever its build tags.
func ours(t *testing.T, file string) []string {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, file), nil, parser.ImportsOnly)
	if err != nil {
		t.Fatal(err)
	}
	var dirs []string
	for _, spec := range parsed.Imports {
		imported, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			t.Fatal(err)
		}
		if dir, ok := strings.CutPrefix(imported, "rota/"); ok {
			dirs = append(dirs, dir)
		}
	}
	return dirs
}

func TestOnlyTestsMayImportTheTestPackages(t *testing.T) {
	t.Parallel()
	for dir, may := range imports {
		if slices.Contains(testPackages, dir) || dir == "internal/pgtest/with" {
			continue
		}
		for _, imported := range testPackages {
			if slices.Contains(may, imported) {
				t.Errorf("the table permits %s to import %s", dir, imported)
			}
		}
	}
}

func TestTheTableHasNoCycle(t *testing.T) {
	t.Parallel()
	var visit func(dir string, above []string)
	visit = func(dir string, above []string) {
		if slices.Contains(above, dir) {
			t.Fatalf("a cycle: %s", strings.Join(append(above, dir), " -> "))
		}
		for _, imported := range imports[dir] {
			if _, known := imports[imported]; !known {
				t.Errorf("%s may import %s, which is not in the table", dir, imported)
			}
			visit(imported, append(slices.Clone(above), dir))
		}
	}
	for dir := range imports {
		visit(dir, nil)
	}
}

func TestOnlyThoseOfTheListAreModulesOfTheirOwn(t *testing.T) {
	t.Parallel()
	walk(t, true, func(file string) {
		dir := path.Dir(file)
		if path.Base(file) == "go.mod" && dir != "." && !slices.Contains(otherModules, dir) {
			t.Errorf("%s: a further module", file)
		}
	})
}

func TestDirectRequirementsAreThoseOfTheList(t *testing.T) {
	t.Parallel()
	cmd := exec.Command("go", "mod", "edit", "-json")
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("read go.mod: %v", err)
	}
	var mod struct {
		Require []struct {
			Path     string
			Indirect bool
		}
		Tool []struct{ Path string }
	}
	if err := json.Unmarshal(out, &mod); err != nil {
		t.Fatal(err)
	}
	for _, require := range mod.Require {
		if !require.Indirect && !slices.Contains(direct, require.Path) {
			t.Errorf("go.mod requires %s, which is not in the list", require.Path)
		}
	}
	if len(mod.Tool) > 0 {
		t.Errorf("go.mod names tools, which belong into tools/: %v", mod.Tool)
	}
}
