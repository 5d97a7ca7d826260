package main

import (
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// A named command is one that a document tells its reader to run.
type named struct {
	document string
	line     string
}

var (
	indentedLine = regexp.MustCompile(`(?m)^ {4}((?:[A-Z_]+=\S* )*[a-z./][a-z0-9./-]*(?: .*)?)$`)
	inlineCode   = regexp.MustCompile("`([^`\n]+)`")
	tableOfOurs  = regexp.MustCompile(`(?ms)^### Commands\n.*?^\n.*?^\n`)
	// What begins so in the midst of a sentence is a command; what is in a block or indented is one whatever it is.
	programs = regexp.MustCompile(`^(?:[A-Z_]+=\S* )*(?:apt-get|brew|chronyc|createdb|curl|docker|git|go|helm|htpasswd|jq|kubectl|kustomize|make|npm|` +
		`openssl|pg_dump|pg_restore|pgbouncer|pgbench|printf|promtool|psql|scheduler|sudo|systemctl|systemd-analyze|timedatectl)(?: |$)`)
	directory = regexp.MustCompile(`^[a-z/-]+/ `) // of the layout, with what it is
)

// namedCommands are all commands of all documents. What has been changed, and what the code writes by
// itself, tells nobody to run anything.
func namedCommands(t *testing.T) []named {
	t.Helper()
	var all []named
	for _, d := range documents(t) {
		if d.name == "CHANGELOG.md" {
			continue
		}
		for _, line := range d.named() {
			all = append(all, named{d.name, line})
		}
	}
	return all
}

func (d document) named() []string {
	var all []string
	add := func(line string) {
		line, _, _ = strings.Cut(line, " #")
		line = strings.TrimSpace(strings.TrimSuffix(strings.ReplaceAll(line, `\|`, "|"), " ..."))
		if line != "" && !strings.HasPrefix(line, "#") && !slices.Contains(all, line) {
			all = append(all, line)
		}
	}
	for _, m := range fenced.FindAllStringSubmatch(d.text, -1) {
		if slices.Contains([]string{"", "sh", "bash", "shell", "console", "text"}, m[1]) {
			for line := range strings.Lines(strings.ReplaceAll(m[2], "\\\n", " ")) {
				add(line)
			}
		}
	}
	rest := fenced.ReplaceAllString(d.text, "")
	for _, m := range indentedLine.FindAllStringSubmatch(rest, -1) {
		if !directory.MatchString(m[1]) {
			add(m[1])
		}
	}
	for _, m := range inlineCode.FindAllStringSubmatch(rest, -1) {
		ours, whole := asOurs(m[1])
		switch {
		case !strings.Contains(m[1], " "): // a name
		case whole:
			add(ours)
		case programs.MatchString(m[1]) && !strings.HasPrefix(m[1], "scheduler "):
			add(m[1])
		}
	}
	for _, row := range strings.Split(tableOfOurs.FindString(d.text), "\n") {
		first, _, _ := strings.Cut(strings.TrimPrefix(row, "| "), " | ")
		for _, m := range inlineCode.FindAllStringSubmatch(first, -1) {
			add("scheduler " + m[1])
		}
	}
	return all
}

// asOurs is inline code as a command of the scheduler, which documents often leave out. It is whole if
// it could be run as it stands; else it speaks of the command.
func asOurs(code string) (line string, whole bool) {
	args := words(strings.TrimSuffix(strings.TrimPrefix(code, "scheduler "), " ..."))
	cmd, rest, err := newRoot(nil, io.Discard).Find(args)
	if err != nil || len(args) == 0 || !cmd.HasParent() || cmd.HasSubCommands() || cmd.ParseFlags(rest) != nil {
		return "", false
	}
	if cmd.Args != nil && cmd.Args(cmd, cmd.Flags().Args()) != nil {
		return "", false
	}
	return "scheduler " + strings.TrimPrefix(code, "scheduler "), true
}

// A form of commands is run by a test, or by a section of .ci/run, or by nothing, for a reason.
type form struct {
	like string
	by   string
	why  string // there is nobody here to run them on
}

const (
	ordersRun  = "TestProveEveryCommandOfTheDocumentsWorks"
	lastingRun = "TestProveLastingCommandsOfTheDocumentsWork"
	othersRun  = "TestProveOtherProgramsOfTheDocumentsWork"
	newJobRun  = "TestProveNewJobsCompileLintAndPassAsTheyAreWritten"
	clusterRun = "TestKubectlLinesOfTheDocumentsInstallRota"
)

// forms are looked through in order.
var forms = []form{
	{like: `go run \./cmd/scheduler new job .*`, by: newJobRun},
	{like: `scheduler new job .*`, by: newJobRun},
	{like: `scheduler (serve|watch)( .*)?`, by: lastingRun},
	{like: `scheduler dev`, by: "TestProveDevShowsEveryJobWithinFifteenSecondsAndLeavesNothing"},
	{like: `scheduler dev --story`, by: "TestProveStoryFailsWithoutTheGuard"},
	{like: `scheduler .*`, by: ordersRun},
	{like: `export [A-Z_]+=\S+`, by: ordersRun},
	{like: `psql .*`, by: "TestProvePsqlLinesOfTheDocumentsWork"},
	{like: `kubectl .*`, by: clusterRun},
	{like: `make run`, by: "TestProveMakeRunShowsThePage"},
	{like: `make story`, by: "TestProveStoryComesOutAsPromised"},
	{like: `make test`, by: "section make test"},
	{like: `make lint`, by: "section make lint"},
	{like: `make prove`, by: "section make prove"},
	{like: `make lint test`, by: "section make lint"},
	{like: `make bench`, by: othersRun},
	{like: `make build`, by: othersRun},
	{like: `make test PKG=.*`, by: othersRun},
	{like: `go generate \./cmd/scheduler`, by: othersRun},
	{like: `(\S+=\S+ )?go test \./.*`, by: othersRun},
	{like: `git grep .*`, by: othersRun},
	{like: `(htpasswd|openssl|printf) .*`, by: othersRun},
	{like: `systemd-analyze verify`, by: "TestSystemdAcceptsTheUnit"},

	{like: `systemctl status rota`, why: "the unit is installed on a host that boots by systemd"},
	{like: `chronyc tracking`, why: "it asks the time service of a host"},
}

// formOf is the form of a command.
func formOf(line string) (form, bool) {
	for _, f := range forms {
		if regexp.MustCompile(`^(?:` + f.like + `)$`).MatchString(line) {
			return f, true
		}
	}
	return form{}, false
}

// runBy are the commands of the documents that the test has to run, each once.
func runBy(t *testing.T, test string) []named {
	t.Helper()
	var all []named
	for _, n := range namedCommands(t) {
		f, known := formOf(n.line)
		if known && f.by == test && !slices.ContainsFunc(all, func(o named) bool { return o.line == n.line }) {
			all = append(all, n)
		}
	}
	return all
}

// A document that names a command which no test runs fails here.
func TestEveryCommandOfTheDocumentsIsRunByATest(t *testing.T) {
	t.Parallel()
	tests := testsOfTheRepository(t)
	used := map[string]bool{}
	all := namedCommands(t)
	for _, n := range all {
		f, known := formOf(n.line)
		switch {
		case !known:
			t.Errorf("%s: no test runs %q: have one of those in forms do it, or say there why none can", n.document, n.line)
		case f.why == "" && !tests[f.by]:
			t.Errorf("%s: %q is run by %q, which there is not", n.document, n.line, f.by)
		}
		used[f.like] = true
	}
	for _, f := range forms {
		if !used[f.like] {
			t.Errorf("no document has %q any more", f.like)
		}
	}
	if len(all) < 150 {
		t.Errorf("only %d commands were found", len(all))
	}
}

// testsOfTheRepository are the names of all tests, and the sections of CI.
func testsOfTheRepository(t *testing.T) map[string]bool {
	t.Helper()
	all := map[string]bool{}
	root := filepath.Join("..", "..")
	for _, pattern := range []string{"cmd/*/*_test.go", "deploy/*_test.go", "deploy/check/*_test.go", "internal/*/*_test.go", ".ci/run"} {
		files, err := filepath.Glob(filepath.Join(root, filepath.FromSlash(pattern)))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range regexp.MustCompile(`(?m)^func (Test\w+)\(t \*testing\.T\)|^(section make \w+)$`).FindAllStringSubmatch(string(text), -1) {
				all[m[1]+m[2]] = true
			}
		}
	}
	return all
}
