//go:build prove

package deploy_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
)

// The image is the binary alone: built by the Dockerfile's own line, it works in an empty root, as
// nobody, without zones, a shell or a C library.
func TestProveBinaryWorksInAnEmptyRoot(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root may change the root directory")
	}
	m := regexp.MustCompile(`(?m)^RUN CGO_ENABLED=0 (go build .*) -o /scheduler (\S+)$`).FindStringSubmatch(read(t, "Dockerfile"))
	if m == nil {
		t.Fatal("the Dockerfile has no line that builds")
	}
	root, err := os.MkdirTemp("", "rota-image-") // not the test's own, which only its owner may enter
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(root) })
	if err := os.Chmod(root, 0o755); err != nil {
		t.Fatal(err)
	}
	// Paths in the binary matter to no one here, and would make everything be compiled anew.
	line := strings.Replace(m[1], " -trimpath", "", 1)
	build := exec.Command("sh", "-c", line+` -o "$OUT" `+m[2])
	build.Dir = ".."
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "VERSION=1.2.3", "OUT="+filepath.Join(root, "scheduler"))
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	in := func(args ...string) (string, error) {
		cmd := exec.Command("/scheduler", args...)
		cmd.Dir, cmd.Env = "/", []string{"DATABASE_URL=postgres://rota@db.example/rota"}
		cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: root, Credential: &syscall.Credential{Uid: 65532, Gid: 65532}}
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	if out, err := in("version"); err != nil || strings.TrimSpace(out) != "1.2.3" {
		t.Errorf("version: %v, %s", err, out)
	}
	if out, err := in("check"); err != nil || !strings.Contains(out, "are well") {
		t.Errorf("check: %v, %s", err, out)
	}
	if out, err := in("health", "--listen", "127.0.0.1:1"); err == nil || !strings.Contains(out, "127.0.0.1:1") {
		t.Errorf("health: %v, %s", err, out)
	}
}
