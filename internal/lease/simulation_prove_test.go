//go:build prove

package lease

import "testing"

func TestProveSimulation(t *testing.T) { simulate(t, 2000) }
