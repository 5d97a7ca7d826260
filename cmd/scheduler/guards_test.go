package main

import (
	"os"
	"strings"
	"testing"
)

// guards are the places in the fence that TestProveStoryFailsWithoutTheGuard takes out, with what
// it puts there.
var guards = []struct{ file, guard, none string }{
	{
		"statement.go", "e.epoch = $3::bigint\n   AND l.owner = $2::text AND l.epoch = $3::bigint AND l.expires_at > clock_timestamp()",
		"$2::text <> '' AND $3::bigint > 0",
	},
	{"tx.go", "SELECT rota_guard($1, $2, $3%s)", "SELECT concat($1, $2, $3%s)"},
}

// A quick test of the long one's ground, which would else be missed until that is run.
func TestFenceHasItsGuardsWhereTheStoryTakesThemOut(t *testing.T) {
	t.Parallel()
	for _, g := range guards {
		source, err := os.ReadFile("../../internal/fence/" + g.file)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Count(string(source), g.guard) != 1 {
			t.Errorf("%s no longer has its guard as %q", g.file, g.guard)
		}
	}
}
