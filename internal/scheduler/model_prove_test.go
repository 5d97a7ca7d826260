//go:build prove

package scheduler

import (
	"fmt"
	"testing"
)

// P7: as TestEachTickIsOnRecordAndNoneIsRunTwice, many times over; in halves, for a model uses one core.
func TestProveEachTickIsOnRecordAndNoneIsRunTwice(t *testing.T) {
	for half := range 2 {
		t.Run(fmt.Sprint("half ", half), func(t *testing.T) {
			t.Parallel()
			playModels(t, 1500)
		})
	}
}
