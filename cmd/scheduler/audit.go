package main

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"rota/internal/registry"
	"rota/internal/status"
)

func auditCommand(env []string) *cobra.Command {
	cfg := Defaults()
	cmd := group("audit", "Who gave which order, and what came of it", auditListCommand(env, &cfg))
	databaseFlag(cmd.PersistentFlags(), &cfg)
	return cmd
}

func auditListCommand(env []string, cfg *Config) *cobra.Command {
	var (
		asJSON bool
		of     status.AuditOf
		job    string
		by     string
	)
	cmd := &cobra.Command{
		Use: "list", Short: "List orders, and what the replicas made of them, newest first",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			of.Job, of.Actor = job, by
			if err := validList(of, of.Limit); err != nil {
				return coded(exitUsage, err)
			}
			var page status.AuditPage
			err := reading(cmd.Context(), *cfg, env, nil, func(r *status.Reader) (err error) {
				if page, err = r.Audit(cmd.Context(), of); err != nil || len(page.Lines) > 0 {
					return err
				}
				return tellUnknown(cmd, r, job)
			})
			switch {
			case err != nil:
				return err
			case asJSON:
				return printJSON(cmd.OutOrStdout(), page.JSON())
			}
			if page.Next > 0 {
				defer fmt.Fprintf(cmd.ErrOrStderr(), "there are more: --before %d\n", page.Next)
			}
			return printAudit(cmd.OutOrStdout(), page.AsOf, page.Lines)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&job, "job", "", "only orders about this job; * for those about all jobs at once")
	flags.StringVar(&by, "by", "", "only lines of this `person`, or replica")
	flags.Int64Var(&of.Before, "before", 0, "only lines with a lower `id`")
	flags.IntVar(&of.Limit, "limit", 20, "how many at most")
	_ = flags.SetAnnotation("by", flagOnly, nil) // ROTA_BY is who gives orders
	if err := cmd.RegisterFlagCompletionFunc("job", completeJobs); err != nil {
		panic(err) // there is no such flag
	}
	jsonFlag(cmd, &asJSON)
	return cmd
}

func printAudit(out io.Writer, asOf time.Time, lines []status.Line) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "WHEN\tWHO\tVIA\tWHAT\tON\tWHY\tRESULT")
	for _, l := range lines {
		what, result := orderWords(l)
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", stamp(l.At), plain(l.Actor, 80), plain(l.Via, 20),
			plain(what, 200), plain(subject(l), 200), dash(plain(l.Reason, 80)), dash(plain(result, 80)))
	}
	fmt.Fprintf(w, asOfLine, stamp(asOf))
	return w.Flush()
}

// orderWords tells what was ordered from what came of it, both of which are in the detail.
func orderWords(l status.Line) (what, result string) {
	what = l.Action
	var detail map[string]json.RawMessage
	if json.Unmarshal(l.Detail, &detail) != nil {
		return what, ""
	}
	if _ = json.Unmarshal(detail["result"], &result); result == "" && detail["new_epoch"] != nil {
		result = "epoch " + string(detail["new_epoch"])
	}
	var outcome, why string
	if _ = json.Unmarshal(detail["outcome"], &outcome); outcome != "" {
		_ = json.Unmarshal(detail["why"], &why)
		result = outcome + because(why, 300)
	}
	for _, told := range []string{"result", "outcome", "why"} {
		delete(detail, told)
	}
	delete(detail, "new_epoch")
	for _, name := range slices.Sorted(maps.Keys(detail)) {
		value := string(detail[name])
		if text := ""; json.Unmarshal(detail[name], &text) == nil {
			value = text
		}
		what += " " + name + "=" + value
	}
	return what, result
}

// subject is what an order is about.
func subject(l status.Line) string {
	var words []string
	switch {
	case l.Job == status.AllJobs:
		words = append(words, "all jobs")
	case l.Lease != "":
		words = append(words, l.Lease)
	case l.Job != "":
		words = append(words, l.Job)
	}
	if l.Replica != "" {
		words = append(words, l.Replica)
	}
	if l.Run > 0 {
		words = append(words, fmt.Sprintf("run %d", l.Run))
	}
	if l.Request > 0 {
		words = append(words, fmt.Sprintf("request %d", l.Request))
	}
	return dash(strings.Join(words, ", "))
}

// tellUnknown refuses, of a list that is empty, a job that is neither in this binary nor in the
// database.
func tellUnknown(cmd *cobra.Command, r *status.Reader, job string) error {
	if job == "" || job == status.AllJobs {
		return nil
	}
	if _, err := findJob(job); err == nil {
		return nil
	}
	if whole, k, _ := registry.LeaseOf(job); k > 0 {
		return coded(exitUsage, ofAShard(job, whole))
	}
	known, err := r.Knows(cmd.Context(), job)
	if err == nil && !known {
		return coded(exitUsage, fmt.Errorf("there is no job %q, in this binary or in the database", job))
	}
	return err
}
