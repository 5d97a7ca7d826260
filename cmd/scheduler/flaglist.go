package main

import (
	"encoding/csv"
	"errors"
	"strings"

	"github.com/spf13/pflag"
)

// listFlag declares a list, which keeps what it holds as its default.
func listFlag(flags *pflag.FlagSet, to *[]string, name, usage string) {
	flags.StringSliceVar(to, name, *to, usage)
	f := flags.Lookup(name)
	f.Value = linesToo{f.Value}
}

// linesToo is a list whose entries may stand in lines of their own too, as in a manifest. The parser of
// flags drops all lines but the first, without a word.
type linesToo struct{ pflag.Value }

func (l linesToo) Set(text string) error {
	r := csv.NewReader(strings.NewReader(text))
	r.FieldsPerRecord = -1
	lines, err := r.ReadAll()
	if err != nil {
		var wrong *csv.ParseError
		if errors.As(err, &wrong) {
			err = wrong.Err
		}
		return err
	}
	var all []string
	for _, line := range lines {
		for _, entry := range line {
			if entry != "" || len(lines) == 1 { // a comma may end a line
				all = append(all, entry)
			}
		}
	}
	if len(all) == 0 {
		return l.Value.Set("")
	}
	var one strings.Builder
	w := csv.NewWriter(&one)
	if err := w.Write(all); err != nil {
		return err
	}
	w.Flush()
	return l.Value.Set(strings.TrimSuffix(one.String(), "\n"))
}
