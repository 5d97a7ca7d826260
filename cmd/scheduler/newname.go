package main

import (
	"errors"
	"fmt"
	"go/ast"
	gobuild "go/build"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"rota/internal/registry"
)

// newName is narrower than a job's name may be: it also names files, tables and what Go declares.
var newName = regexp.MustCompile(`^[a-z][a-z0-9]*([_-][a-z0-9]+)*$`)

// longestName leaves room for what is appended to it in the name of a table, which has 63 bytes.
const longestName = 48

// plan says what a new job of the name would be, or why there can be none.
func plan(dir, name string) (newJob, error) {
	if !newName.MatchString(name) || len(name) > longestName {
		return newJob{}, fmt.Errorf("name %.80q: it must be 1 to %d of a-z, 0-9, single _ and -, and begin with a letter", name, longestName)
	}
	j := newJob{Name: name, Table: strings.ReplaceAll(name, "-", "_")}
	for word := range strings.SplitSeq(j.Table, "_") {
		j.Title += strings.ToUpper(word[:1]) + word[1:]
	}
	j.Ident = strings.ToLower(j.Title[:1]) + j.Title[1:]
	var err error
	if j.Module, err = moduleOf(dir); err != nil {
		return newJob{}, err
	}
	if err := j.free(dir); err != nil {
		return newJob{}, err
	}
	if j.version, err = nextVersion(dir); err != nil {
		return newJob{}, err
	}
	return j, nil
}

var moduleLine = regexp.MustCompile(`(?m)^module\s+(\S+)`)

// moduleOf is the module's path, of a directory that holds a scheduler's source.
func moduleOf(dir string) (string, error) {
	module, err := os.ReadFile(filepath.Join(dir, "go.mod"))
	found := moduleLine.FindSubmatch(module)
	for _, part := range []string{"jobs/doc.go", "jobs/migrations", "internal/registry", "internal/jobtest"} {
		if err == nil {
			_, err = os.Stat(filepath.Join(dir, filepath.FromSlash(part)))
		}
	}
	if err != nil || found == nil {
		shown, _ := filepath.Abs(dir)
		return "", fmt.Errorf("%s is no checkout of the scheduler: run this where its go.mod and its jobs/ are, or name that directory by --dir", shown)
	}
	return string(found[1]), nil
}

// meant are the names with a meaning in the files to be written.
var meant = []string{"init", "main", "context", "errors", "fmt", "testing", "time", "pgx", "fence", "jobtest", "pgtest", "registry"}

// free says why the name cannot be had: a job, a file or a declaration of package jobs has it, or Go.
func (j newJob) free(dir string) error {
	refuse := func(format string, args ...any) error {
		return fmt.Errorf("name %q: %w: take another", j.Name, fmt.Errorf(format, args...))
	}
	jobs, _ := registry.Jobs() // what is wrong with them is for check to say
	for _, other := range jobs {
		if other.Name == j.Name {
			return refuse("there is a job of that name, in %s", other.Source)
		}
	}
	for _, f := range j.files() {
		if _, err := os.Lstat(filepath.Join(dir, f.path)); !errors.Is(err, fs.ErrNotExist) {
			return refuse("there is a file %s", f.path)
		}
	}
	if token.IsKeyword(j.Ident) || types.Universe.Lookup(j.Ident) != nil || slices.Contains(meant, j.Ident) {
		return refuse("%s means something in Go, or in the files to be written", j.Ident)
	}
	if !everywhere(j.Table + ".go") {
		return refuse("Go would compile %s.go for some systems or tests alone", j.Table)
	}
	declared, err := declaredIn(filepath.Join(dir, "jobs"))
	if err != nil {
		return err
	}
	for _, ident := range []string{j.Ident, j.Ident + "Results", j.Ident + "Args", j.Ident + "Result", j.Ident + "ItemsSQL", j.Ident + "Work", j.Ident + "ResultsSQL"} {
		if where, taken := declared[ident]; taken {
			return refuse("%s declares or imports %s", where, ident)
		}
	}
	return nil
}

// everywhere says whether Go compiles a file of the name on every system.
func everywhere(name string) bool {
	nowhere := gobuild.Default
	nowhere.GOOS, nowhere.GOARCH = "none", "none"
	nowhere.OpenFile = func(string) (io.ReadCloser, error) { return io.NopCloser(strings.NewReader("package jobs\n")), nil }
	match, err := nowhere.MatchFile("", name)
	return err == nil && match && !strings.HasSuffix(name, "_test.go")
}

// declaredIn is where each name of a package is declared, or imported by one of its files, which no
// declaration of the package may be called either.
func declaredIn(dir string) (map[string]string, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		return nil, err
	}
	where := map[string]string{}
	for _, file := range files {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, fmt.Errorf("read what is declared already: %w", err)
		}
		for _, name := range declaredBy(parsed) {
			where[name] = file
		}
	}
	return where, nil
}

var majorVersion = regexp.MustCompile(`^v[0-9]+$`)

func declaredBy(file *ast.File) (names []string) {
	for _, spec := range file.Imports {
		imported, _ := strconv.Unquote(spec.Path.Value)
		if majorVersion.MatchString(path.Base(imported)) {
			imported = path.Dir(imported)
		}
		names = append(names, path.Base(imported))
	}
	for _, d := range file.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if d.Recv == nil {
				names = append(names, d.Name.Name)
			}
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				switch spec := spec.(type) {
				case *ast.TypeSpec:
					names = append(names, spec.Name.Name)
				case *ast.ValueSpec:
					for _, name := range spec.Names {
						names = append(names, name.Name)
					}
				}
			}
		}
	}
	return names
}
