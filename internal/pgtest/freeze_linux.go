package pgtest

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"

	"rota/internal/devdb"
)

// Freeze stops every process of a cluster as a machine that hangs does: connections stay, and nobody
// answers. It goes on with thaw, or when the test ends.
func Freeze(t testing.TB, c *devdb.Cluster) (thaw func()) {
	t.Helper()
	server := c.PID()
	frozen := []int{server}
	if err := syscall.Kill(server, syscall.SIGSTOP); err != nil { // first, so that no child is born meanwhile
		t.Fatal(err)
	}
	thaw = sync.OnceFunc(func() {
		for _, pid := range frozen {
			if err := syscall.Kill(pid, syscall.SIGCONT); err != nil && !errors.Is(err, syscall.ESRCH) {
				t.Errorf("thaw %d: %v", pid, err)
			}
		}
	})
	t.Cleanup(thaw)
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		stat, err := os.ReadFile("/proc/" + e.Name() + "/stat")
		if err != nil {
			continue // no process, or one that has gone
		}
		var state string
		var pid, parent int
		_, _ = fmt.Sscan(e.Name(), &pid)
		after := string(stat)[strings.LastIndex(string(stat), ")")+1:]
		if _, err := fmt.Sscan(after, &state, &parent); err != nil || parent != server {
			continue
		}
		if err := syscall.Kill(pid, syscall.SIGSTOP); err == nil {
			frozen = append(frozen, pid)
		}
	}
	return thaw
}
