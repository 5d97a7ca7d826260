package main

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"go/format"
	"io"
	"os"
	"path/filepath"
	"strings"
	"text/template"
	"time"

	"github.com/pressly/goose/v3"
	"github.com/spf13/cobra"

	"rota/internal/registry"
)

//go:embed templates/*.tmpl
var jobTemplates embed.FS

func newCommand() *cobra.Command {
	return group("new", "Write what is to be filled in", newJobCommand())
}

func newJobCommand() *cobra.Command {
	var dir, schedule, zone string
	cmd := &cobra.Command{
		Use: "job NAME", Short: "Write a job, its migration and its test; run it in a checkout of the scheduler",
		Long: `New job writes three files into a checkout of the scheduler: a job that works on the rows of one table and
writes to another through its fence, the migration for both, and a test that also has the job
superseded. They compile and pass as they are; what the job is really to do is yours to fill in.`,
		Example: `  scheduler new job settlement --schedule "0 8 * * 2-6" --zone Europe/Berlin
  scheduler new job price_check --schedule "every 5s"`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			when, err := scheduleSource(schedule, zone)
			if err != nil {
				return coded(exitUsage, err)
			}
			j, err := plan(dir, args[0])
			if err != nil {
				return coded(exitUsage, err)
			}
			j.Schedule = when
			if err := j.write(dir); err != nil {
				return err
			}
			for _, f := range j.files() {
				fmt.Fprintln(cmd.OutOrStdout(), f.path)
			}
			j.tellNext(cmd.ErrOrStderr())
			return nil
		},
	}
	cmd.Flags().StringVar(&schedule, "schedule", "every 1m", `"every 5s", "on demand", or a cron spec`)
	cmd.Flags().StringVar(&zone, "zone", "", "IANA `zone` of a cron spec, such as Europe/Berlin; without it UTC")
	cmd.Flags().StringVar(&dir, "dir", ".", "the `checkout`")
	for _, name := range []string{"schedule", "zone", "dir"} {
		_ = cmd.Flags().SetAnnotation(name, flagOnly, nil)
	}
	return cmd
}

// scheduleSource is the schedule as Go code.
func scheduleSource(text, zone string) (string, error) {
	s, err := registry.ParseSchedule(text, zone)
	switch {
	case err != nil:
		return "", fmt.Errorf("schedule: %w", err)
	case zone != "" && s.Kind() != registry.Calendar:
		return "", fmt.Errorf("zone %s: only a cron spec has one, and the schedule is %s: leave it out", zone, s)
	}
	switch s.Kind() {
	case registry.Fixed:
		return "registry.Every(" + durationSource(s.Period()) + ")", nil
	case registry.Asked:
		return "registry.OnDemand", nil
	case registry.Unbroken:
		return "", errors.New("schedule continuous: such a job has another form: copy jobs/quote_watch.go")
	}
	source := fmt.Sprintf("registry.Cron(%q)", strings.Join(strings.Fields(text), " "))
	if zone != "" {
		source += fmt.Sprintf(".In(%q)", zone)
	}
	return source, nil
}

// durationSource is whole seconds as Go code, in the largest unit that divides them.
func durationSource(d time.Duration) string {
	for _, unit := range []struct {
		is   time.Duration
		name string
	}{{time.Hour, "time.Hour"}, {time.Minute, "time.Minute"}, {time.Second, "time.Second"}} {
		switch {
		case d == unit.is:
			return unit.name
		case d%unit.is == 0:
			return fmt.Sprintf("%d * %s", d/unit.is, unit.name)
		}
	}
	return fmt.Sprintf("%d", d)
}

// A newJob is what the templates are filled in with.
type newJob struct {
	Module   string // the path of the checkout's module
	Name     string // of the job: price-check
	Ident    string // in Go: priceCheck
	Title    string // in Go, at the end of a name: PriceCheck
	Table    string // in SQL, and of the files: price_check
	Schedule string // as Go code
	version  int64  // of the migration
}

// A newFile is one to be written, by its path in the checkout.
type newFile struct{ path, template string }

func (j newJob) files() []newFile {
	return []newFile{
		{filepath.Join("jobs", j.Table+".go"), "job.go.tmpl"},
		{filepath.Join("jobs", "migrations", fmt.Sprintf("%05d_%s.sql", j.version, j.Table)), "migration.sql.tmpl"},
		{filepath.Join("jobs", j.Table+"_test.go"), "job_test.go.tmpl"},
	}
}

// write writes all of the files or, where one cannot be, none.
func (j newJob) write(dir string) (err error) {
	texts, err := template.ParseFS(jobTemplates, "templates/*.tmpl")
	if err != nil {
		return fmt.Errorf("read the templates: %w", err)
	}
	var written []string
	defer func() {
		if err == nil {
			return
		}
		for _, path := range written {
			_ = os.Remove(path)
		}
	}()
	for _, f := range j.files() {
		var text bytes.Buffer
		if err := texts.ExecuteTemplate(&text, f.template, j); err != nil {
			return fmt.Errorf("fill in %s: %w", f.path, err)
		}
		content := text.Bytes()
		if filepath.Ext(f.path) == ".go" {
			if content, err = format.Source(content); err != nil {
				return fmt.Errorf("format %s: %w", f.path, err)
			}
		}
		path := filepath.Join(dir, f.path)
		if err := writeNew(path, content); err != nil {
			return err
		}
		written = append(written, path)
	}
	return nil
}

// writeNew never writes over a file.
func writeNew(path string, content []byte) error {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return fmt.Errorf("write a new file: %w", err)
	}
	_, err = file.Write(content)
	if err := errors.Join(err, file.Close()); err != nil {
		_ = os.Remove(path)
		return fmt.Errorf("write a new file: %w", err)
	}
	return nil
}

func (j newJob) tellNext(out io.Writer) {
	files := j.files()
	fmt.Fprintf(out, `
The job %s works as it stands. Next:
  1. In %s, say what it is for and when it is due, and put its work into %sWork.
  2. In %s, give its tables their columns, before anybody applies it.
  3. make test PKG=./jobs/ ARGS='-run %s'
  4. go run ./cmd/scheduler check
`, j.Name, files[0].path, j.Ident, files[1].path, j.Title)
}

// nextVersion is the first number that no migration of the jobs has.
func nextVersion(dir string) (int64, error) {
	files, err := filepath.Glob(filepath.Join(dir, "jobs", "migrations", "*.sql"))
	if err != nil {
		return 0, err
	}
	var newest int64
	for _, f := range files {
		version, err := goose.NumericComponent(filepath.Base(f))
		if err != nil {
			return 0, fmt.Errorf("migration %s: %w", f, err)
		}
		newest = max(newest, version)
	}
	return newest + 1, nil
}
