//go:build prove

package cron

import (
	"testing"
	"time"
)

// P7: the same for every zone and each of its changes in 41 years, with 50 specs each.
func TestProveNextIsWhatTheOracleSays(t *testing.T) {
	start, seed, zones := time.Now(), seedOf(t), distinctZones(t)
	var work []change
	for _, zone := range zones {
		work = append(work, changesOf(t, zone)...)
	}
	spent := compare(t, seed, work, 50, 5)
	if len(zones) < 300 || len(work) < 5000 || spent.specs < 40*len(work) {
		t.Errorf("only %d zones, %d changes and %d specs were looked at", len(zones), len(work), spent.specs)
	}
	t.Logf("seed %d, %d zones, %d changes, %d specs, %d calls in %v", seed, len(zones), len(work), spent.specs, spent.calls, time.Since(start))
	t.Logf("Next took %v on average, %v at most: %s", spent.total/time.Duration(spent.calls), spent.slowest, spent.slow)
}
