package main

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"rota/internal/lease"
	"rota/internal/registry"
	"rota/internal/scheduler"
	"rota/internal/web"
)

// Config is everything that can be set. Each field has a flag, and the environment variable
// ROTA_<FLAG> for it; flags win. The database is the exception: it is named by DATABASE_URL, or by
// the PG* variables that psql reads.
type Config struct {
	DatabaseURL string // empty: the PG* variables

	Listen      string        // host:port of the page, the API, the probes and the metrics
	Lease       time.Duration // how long a lease runs from each renewal
	Renew       time.Duration // the time between renewals, at most a third of Lease
	Drain       time.Duration // how long runs may take to finish at shutdown before they are cancelled
	Grace       time.Duration // how long a cancelled run may take to return before it is left behind
	Migrate     string        // auto, check or off: what is done about the schema at start
	Log         string        // text or json
	Name        string        // of the host or pod, the first part of the owner id
	JobsFile    string        // changes jobs; empty: none does
	Jobs        []string      // names or patterns of the jobs that are competed for; none: all
	Exclude     []string      // of those that are not
	Witness     string        // on or off: whether a parent process releases what this one leads if it dies
	NoWork      bool          // no job is competed for; the page is served all the same
	KeepHistory time.Duration // how old runs get before they are pruned
	KeepRuns    int           // how many runs of each job are kept
	Environment string        // shown on the page, so that nobody takes one installation for another

	EnvironmentColor string // of the band above the page; empty: none

	Auth           string   // none, basic, token or proxy: how those who use the page and the API say who they are
	AuthFile       string   // of basic and token
	TrustedProxies []string // addresses or ranges whose X-Forwarded headers are believed
	AllowedHosts   []string // names that the page is reached under, besides addresses and localhost
	ExternalURL    string   // under which browsers reach the page; empty: Listen
	OperatorGroups []string // with proxy, the groups that make an operator
	AdminGroups    []string // and an admin
	MetricsAccess  string   // open or viewer
}

// Defaults are the settings of a replica that was told nothing. Drain and Grace together stay below
// the 30 s after which Kubernetes kills a pod.
func Defaults() Config {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return Config{
		Listen: "127.0.0.1:8080",
		Lease:  15 * time.Second, Renew: 5 * time.Second,
		Drain: 25 * time.Second, Grace: 3 * time.Second,
		Migrate: migrateAuto, Log: "text", Name: host, Witness: "on",
		KeepHistory: scheduler.DefaultAge, KeepRuns: scheduler.DefaultRuns,
		Auth: web.AuthNone, OperatorGroups: []string{"rota-operators"}, AdminGroups: []string{"rota-admins"}, MetricsAccess: "open",
	}
}

// databaseFlag names the database on every command that needs one.
func databaseFlag(flags *pflag.FlagSet, cfg *Config) {
	flags.StringVar(&cfg.DatabaseURL, "database-url", cfg.DatabaseURL,
		"PostgreSQL `URL`; DATABASE_URL and the PG* variables keep a password out of the list of processes")
}

// serveFlags are those of a replica, which check takes too.
func serveFlags(flags *pflag.FlagSet, cfg *Config) {
	databaseFlag(flags, cfg)
	listenFlag(flags, cfg)
	flags.DurationVar(&cfg.Lease, "lease", cfg.Lease, "how long a lease runs from each renewal")
	flags.DurationVar(&cfg.Renew, "renew", cfg.Renew, "time between renewals, at most a third of the lease")
	flags.DurationVar(&cfg.Drain, "drain", cfg.Drain, "how long runs may take to finish at shutdown before they are cancelled")
	flags.DurationVar(&cfg.Grace, "grace", cfg.Grace, "how long a cancelled run may take to return before it is left behind")
	flags.StringVar(&cfg.Migrate, "migrate", cfg.Migrate, "the schema at start: auto brings it up to date, check refuses an older one, off does not look")
	flags.StringVar(&cfg.Log, "log", cfg.Log, "form of the log on stderr: text or json")
	flags.StringVar(&cfg.Name, "name", cfg.Name, "name of the host or pod, the first part of the owner id")
	jobsFileFlag(flags, &cfg.JobsFile)
	listFlag(flags, &cfg.Jobs, "jobs", "`names` or patterns of the only jobs that this replica leads, as in sync-*,reconciliation")
	listFlag(flags, &cfg.Exclude, "exclude", "`names` or patterns of jobs that this replica does not lead")
	flags.StringVar(&cfg.Witness, "witness", cfg.Witness, "on: a small parent process releases the leases at once should this one be killed; off: they run out")
	flags.BoolVar(&cfg.NoWork, "no-work", false, "lead nothing, and serve the page, the API and the metrics alone")
	flags.DurationVar(&cfg.KeepHistory, "keep-history", cfg.KeepHistory, "how old runs and settled requests get before they are pruned")
	flags.IntVar(&cfg.KeepRuns, "keep-runs", cfg.KeepRuns, "how many runs of each job are kept, the newest")
	flags.StringVar(&cfg.Environment, "environment", cfg.Environment, "name of the installation, shown on the page")
	flags.StringVar(&cfg.EnvironmentColor, "environment-color", cfg.EnvironmentColor, "`color` of the band above the page: "+strings.Join(web.Colors, ", "))
	accessFlags(flags, cfg)
	flags.VisitAll(func(f *pflag.Flag) { f.DefValue = asHelped(f) })
}

// asHelped is a flag's default as its help shows it.
func asHelped(f *pflag.Flag) string {
	if f.Value.Type() == "duration" {
		return asGiven(f, f.DefValue)
	}
	return f.DefValue
}

func listenFlag(flags *pflag.FlagSet, cfg *Config) {
	flags.StringVar(&cfg.Listen, "listen", cfg.Listen, "`address` of the page, the API, the probes and the metrics")
}

// flagOnly marks a flag that no variable sets.
const flagOnly = "flag-only"

// fromEnvironment sets every flag that was not given from its variable.
func fromEnvironment(cmd *cobra.Command, env []string) error {
	var errs []error
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		name := variable(f.Name)
		value, ok := lookup(env, name)
		_, hidden := f.Annotations[flagOnly]
		if f.Changed || !ok || value == "" || hidden || f.Name == "help" {
			return
		}
		if err := cmd.Flags().Set(f.Name, value); err != nil {
			if f.Name == "database-url" {
				errs = append(errs, fmt.Errorf("%s: not a valid URL", name)) // which may hold a password
				return
			}
			errs = append(errs, variableError(f, name, err))
			return
		}
		_ = cmd.Flags().SetAnnotation(f.Name, fromVariable, []string{name}) // the flag is there
	})
	return errors.Join(errs...)
}

func variable(flag string) string {
	if flag == "database-url" {
		return "DATABASE_URL"
	}
	return "ROTA_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

func lookup(env []string, name string) (string, bool) {
	for _, pair := range slices.Backward(env) {
		if value, ok := strings.CutPrefix(pair, name+"="); ok {
			return value, true
		}
	}
	return "", false
}

// Validate says all that is wrong with the settings of a replica, each in a line of its own.
func (c Config) Validate() error {
	var errs []error
	refuse := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }

	if err := (lease.Config{Owner: "set later", Lease: c.Lease, Renew: c.Renew}).Validate(); err != nil {
		errs = append(errs, err)
	}
	if c.Drain < 0 {
		refuse("drain %s: it must not be negative (25s is usual; 0 cancels runs at once)", registry.Span(c.Drain))
	}
	if c.Grace <= 0 {
		refuse("grace %s: it must be positive (3s is usual)", registry.Span(c.Grace))
	}
	if !slices.Contains([]string{migrateAuto, migrateCheck, migrateOff}, c.Migrate) {
		refuse("migrate %q: it must be auto, check or off", c.Migrate)
	}
	if c.Witness != "on" && c.Witness != "off" {
		refuse("witness %q: it must be on or off", c.Witness)
	}
	if c.Log != "text" && c.Log != "json" {
		refuse("log %q: it must be text or json", c.Log)
	}
	switch {
	case c.Name == "":
		refuse("name is empty: give the host's or pod's")
	case utf8.RuneCountInString(c.Name) > longestHost || strings.ContainsFunc(c.Name, odd):
		refuse("name %.40q: it must be at most %d printable characters, none of them /, since owner ids begin with it", c.Name, longestHost)
	}
	if c.KeepHistory < time.Hour {
		refuse("keep-history %s: it must be at least 1h (720h is usual)", registry.Span(c.KeepHistory))
	}
	if c.KeepRuns < 1 {
		refuse("keep-runs %d: it must be at least 1 (10000 is usual)", c.KeepRuns)
	}
	if err := validateListen(c.Listen); err != nil {
		errs = append(errs, err)
	}
	if c.EnvironmentColor != "" && !slices.Contains(web.Colors, c.EnvironmentColor) {
		refuse("environment-color %.40q: it must be one of %s", c.EnvironmentColor, strings.Join(web.Colors, ", "))
	}
	if err := c.validateDatabase(); err != nil {
		errs = append(errs, err)
	}
	if _, err := c.gate(); err != nil {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// longestHost is in characters. A pod's name may have 63.
const longestHost = 100

// odd is what may not stand in the name, which ends at the first / of an owner id.
func odd(r rune) bool { return r == '/' || r == utf8.RuneError || !unicode.IsPrint(r) }

// validateDatabase looks at the form alone, and never quotes what may hold a password.
func (c Config) validateDatabase() error {
	if c.DatabaseURL == "" {
		return nil
	}
	if _, err := poolConfig(c.DatabaseURL); err != nil {
		return err
	}
	return nil
}

// masked is the database's address without its password.
func (c Config) masked() string {
	if c.DatabaseURL == "" {
		return "the PG* variables"
	}
	u, err := url.Parse(c.DatabaseURL)
	if err != nil || u.Host == "" {
		return "DATABASE_URL"
	}
	// Passwords can stand among the parameters too.
	u.RawQuery, u.Fragment = "", ""
	return u.Redacted()
}

func (c Config) logger(w io.Writer) *slog.Logger {
	if c.Log == "json" {
		return slog.New(slog.NewJSONHandler(w, nil))
	}
	return slog.New(slog.NewTextHandler(w, nil))
}
