//go:build prove

package scheduler

import "testing"

// P7: as TestEachTickIsOnRecordAndNoneIsRunTwice, many times over.
func TestProveEachTickIsOnRecordAndNoneIsRunTwice(t *testing.T) {
	playModels(t, 2000)
}
