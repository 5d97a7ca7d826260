package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"rota/internal/registry"
)

// A document is a page that people read, with its lines.
type document struct {
	name string
	text string
}

func documents(t *testing.T) []document {
	t.Helper()
	var all []document
	for _, pattern := range []string{"*.md", "deploy/*.md", "docs/*.md", "docs/runbooks/*.md"} {
		files, err := filepath.Glob(filepath.Join("..", "..", pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, document{strings.TrimPrefix(filepath.ToSlash(file), "../../"), string(text)})
		}
	}
	if len(all) < 25 {
		t.Fatalf("only %d documents", len(all))
	}
	return all
}

var fenced = regexp.MustCompile("(?ms)^```([a-z]*)\n(.*?)^```")

// blocks are the contents of the fenced blocks of a language.
func (d document) blocks(language string) []string {
	var all []string
	for _, m := range fenced.FindAllStringSubmatch(d.text, -1) {
		if m[1] == language {
			all = append(all, m[2])
		}
	}
	return all
}

var (
	indented = regexp.MustCompile(`(?m)^ {4}((?:make|scheduler|go run) .*)$`)
	inline   = regexp.MustCompile("`((?:scheduler|make) [a-z][^`]*)`")
)

// commands are all commands that the document names.
func (d document) commands() []string {
	var all []string
	for _, language := range []string{"sh", "text"} {
		for _, block := range d.blocks(language) {
			all = append(all, strings.Split(strings.TrimSpace(block), "\n")...)
		}
	}
	rest := fenced.ReplaceAllString(d.text, "")
	for _, re := range []*regexp.Regexp{indented, inline} {
		for _, m := range re.FindAllStringSubmatch(rest, -1) {
			all = append(all, m[1])
		}
	}
	for i := range all {
		all[i], _, _ = strings.Cut(all[i], " #")
		all[i] = strings.TrimSpace(all[i])
	}
	return all
}

// words are those of a shell's line; quotes hold one together.
func words(line string) []string {
	var all []string
	for _, m := range regexp.MustCompile(`(?:'[^']*'|"[^"]*"|[^\s'"])+`).FindAllString(line, -1) {
		all = append(all, strings.NewReplacer(`'`, ``, `"`, ``).Replace(m))
	}
	return all
}

// Every command that a document names exists, with every flag that it is given there.
func TestCommandsOfTheDocumentsExist(t *testing.T) {
	t.Parallel()
	makefile, err := os.ReadFile(filepath.Join("..", "..", "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	checked := 0
	for _, d := range documents(t) {
		for _, line := range d.commands() {
			line = strings.Replace(line, "go run ./cmd/scheduler", "scheduler", 1)
			line, _, _ = strings.Cut(line, " > ")
			switch args := words(line); {
			case len(args) < 2:
			case args[0] == "make":
				if !regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(args[1]) + `:`).Match(makefile) {
					t.Errorf("%s: there is no make %s", d.name, args[1])
				}
				checked++
			case args[0] == "scheduler":
				if err := exists(args[1:]); err != nil {
					t.Errorf("%s: %s: %v", d.name, line, err)
				}
				checked++
			}
		}
	}
	if checked < 100 {
		t.Errorf("only %d commands were found", checked)
	}
}

// exists says what is wrong with a command line.
func exists(args []string) error {
	cmd, rest, err := newRoot(nil, io.Discard).Find(args)
	switch {
	case err != nil:
		return err
	case cmd.HasSubCommands():
		return fmt.Errorf("%s holds other commands, and %v is none of them", cmd.Name(), rest)
	}
	return cmd.ParseFlags(rest)
}

// What a job may say is in the table of writing-a-job.md and in the short form of it, the doc of jobs.
func TestEveryFieldOfAJobIsDocumented(t *testing.T) {
	t.Parallel()
	for file, form := range map[string]string{"docs/writing-a-job.md": "`%s`", "jobs/doc.go": "%s"} {
		text, err := os.ReadFile(filepath.Join("..", "..", filepath.FromSlash(file)))
		if err != nil {
			t.Fatal(err)
		}
		for _, field := range reflect.VisibleFields(reflect.TypeFor[registry.Job]()) {
			if field.Name == "Disabled" || field.Name == "Source" {
				continue // a jobs file and Register set them
			}
			if !regexp.MustCompile(`(?m)^(\| |//   - )[^:|]*` + fmt.Sprintf(form, field.Name)).Match(text) {
				t.Errorf("%s does not say what %s decides", file, field.Name)
			}
		}
	}
}

// The examples of writing-a-job.md compile.
func TestExamplesOfTheDocumentsCompile(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "writing-a-job.md"))
	if err != nil {
		t.Fatal(err)
	}
	code := exampleHead
	for _, block := range (document{"", string(text)}).blocks("go") {
		if !strings.HasPrefix(block, "func ") {
			block = "func _() {\n" + block + "}\n"
		}
		code += "\n" + block
	}
	root, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{
		filepath.Join(root, "jobs", "example", "example.go"): filepath.Join(dir, "example.go"),
	}})
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{"example.go": code, "overlay.json": string(overlay)} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command("go", "build", "-overlay", filepath.Join(dir, "overlay.json"), "./jobs/example")
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

const exampleHead = `package example

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"rota/internal/fence"
	"rota/internal/jobtest"
	"rota/internal/registry"
)

type limits struct{ Most int }

type settlement struct {
	Account string ` + "`db:\"account\"`" + `
	TradeID string ` + "`db:\"trade_id\"`" + `
}

var settlements = fence.Table{Name: "settlements", Key: []string{"account", "trade_id"}, Stamp: "settled_at"}
`

var link = regexp.MustCompile(`\]\(([^)#]+)(?:#[^)]*)?\)`)

func TestLinksOfTheDocumentsLeadSomewhere(t *testing.T) {
	t.Parallel()
	for _, d := range documents(t) {
		for _, m := range link.FindAllStringSubmatch(d.text, -1) {
			if strings.Contains(m[1], "://") || strings.Contains(m[1], " ") {
				continue
			}
			if _, err := os.Stat(filepath.Join("..", "..", filepath.Dir(d.name), m[1])); err != nil {
				t.Errorf("%s: %v", d.name, err)
			}
		}
	}
}
