//go:build prove

package lease

import (
	"fmt"
	"testing"
)

// In halves, for a simulation uses one core.
func TestProveSimulation(t *testing.T) {
	for half := range 2 {
		t.Run(fmt.Sprint("half ", half), func(t *testing.T) {
			t.Parallel()
			simulate(t, 1500)
		})
	}
}
