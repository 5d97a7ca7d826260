package main

import (
	"slices"
	"strings"
	"testing"

	"rota/internal/registry"
)

func TestReplicaCompetesForTheJobsThatItIsToldTo(t *testing.T) {
	t.Parallel()
	var jobs []registry.Job
	for _, name := range []string{"bridge_health", "reconciliation", "sync-eu", "sync-us"} {
		jobs = append(jobs, registry.Job{Name: name})
	}
	for _, c := range []struct {
		name string
		cfg  Config
		want []string
		says []string
	}{
		{"all", Config{}, []string{"bridge_health", "reconciliation", "sync-eu", "sync-us"}, nil},
		{"some", Config{Jobs: []string{"sync-*", "reconciliation"}}, []string{"reconciliation", "sync-eu", "sync-us"}, nil},
		{"others", Config{Exclude: []string{"sync-*"}}, []string{"bridge_health", "reconciliation"}, nil},
		{"both", Config{Jobs: []string{"sync-*"}, Exclude: []string{"sync-us"}}, []string{"sync-eu"}, nil},
		{"none", Config{NoWork: true}, nil, nil},
		{"misspelt", Config{Jobs: []string{"sink-*"}, Exclude: []string{"reconcilliation"}}, nil, []string{`jobs "sink-*"`, `exclude "reconcilliation"`, "no job"}},
		{"no pattern", Config{Jobs: []string{"[a"}}, nil, []string{`jobs "[a"`, "pattern"}},
	} {
		got, err := c.cfg.chosen(jobs)
		var names []string
		for _, j := range got {
			names = append(names, j.Name)
		}
		if !slices.Equal(names, c.want) || (err != nil) != (c.says != nil) {
			t.Errorf("%s: %v, %v", c.name, names, err)
		}
		for _, s := range c.says {
			if err == nil || !strings.Contains(err.Error(), s) {
				t.Errorf("%s: %v does not say %s", c.name, err, s)
			}
		}
	}
}
