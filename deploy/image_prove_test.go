//go:build prove

package deploy_test

import (
	"bytes"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"rota/internal/pgtest"
)

// An image is what the Dockerfile makes: a root directory, and how a process is started in it.
type image struct {
	root    string
	env     []string
	command []string
	health  []string
}

var (
	buildLine  = regexp.MustCompile(`(?m)^RUN CGO_ENABLED=0 (go build .*) -o /scheduler (\S+)$`)
	copyLine   = regexp.MustCompile(`(?m)^COPY --from=build (\S+) (\S+)$`)
	envLine    = regexp.MustCompile(`(?m)^ENV (.*)$`)
	jsonWord   = regexp.MustCompile(`"([^"]*)"`)
	entryLine  = regexp.MustCompile(`(?m)^ENTRYPOINT \[(.*)\]$`)
	cmdLine    = regexp.MustCompile(`(?m)^CMD \[(.*)\]$`)
	healthLine = regexp.MustCompile(`(?m)^HEALTHCHECK .* CMD \[(.*)\]$`)
)

// buildImage does what the Dockerfile's lines say, without Docker. What the build stage has of
// certificates is the given file.
func buildImage(t *testing.T, certificates []byte) image {
	t.Helper()
	text := read(t, "Dockerfile")
	last := text[strings.LastIndex(text, "\nFROM scratch\n"):]
	words := func(re *regexp.Regexp) (all []string) {
		m := re.FindStringSubmatch(last)
		if m == nil {
			t.Fatalf("the Dockerfile has no %s", re)
		}
		for _, w := range jsonWord.FindAllStringSubmatch(m[1], -1) {
			all = append(all, w[1])
		}
		return all
	}
	root, err := os.MkdirTemp("", "rota-image-") // not the test's own, which only its owner may enter
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(root) })
	if err := os.Chmod(root, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, m := range copyLine.FindAllStringSubmatch(last, -1) {
		to := filepath.Join(root, m[2])
		if strings.HasSuffix(m[2], "/") {
			to = filepath.Join(to, filepath.Base(m[1]))
		}
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			t.Fatal(err)
		}
		switch m[1] {
		case "/scheduler":
			compile(t, text, to)
		case "/etc/ssl/certs/ca-certificates.crt":
			if err := os.WriteFile(to, certificates, 0o644); err != nil { //nolint:gosec // as in the image
				t.Fatal(err)
			}
		default:
			t.Fatalf("what is %s?", m[1])
		}
	}
	if m := envLine.FindStringSubmatch(last); m == nil || !strings.Contains(last, "\nUSER 65532:65532\n") {
		t.Fatal("the Dockerfile sets no environment, or no user")
	}
	return image{
		root, strings.Fields(envLine.FindStringSubmatch(last)[1]), append(words(entryLine), words(cmdLine)...), words(healthLine),
	}
}

func compile(t *testing.T, dockerfile, to string) {
	t.Helper()
	m := buildLine.FindStringSubmatch(dockerfile)
	if m == nil {
		t.Fatal("the Dockerfile has no line that builds")
	}
	// Paths in the binary matter to no one here, and would make everything be compiled anew.
	line := strings.Replace(m[1], " -trimpath", "", 1)
	build := exec.Command("sh", "-c", line+` -o "$OUT" `+m[2])
	build.Dir = ".."
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "VERSION=1.2.3", "OUT="+to)
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

// run starts a program in the image's root, as its user.
func (i image) run(env []string, args ...string) *exec.Cmd {
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Dir, cmd.Env = "/", append(append([]string(nil), i.env...), env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: i.root, Credential: &syscall.Credential{Uid: 65532, Gid: 65532}}
	return cmd
}

// contain starts the image's command as a container runtime does: as process 1, with no more than /proc
// and /dev/null beside what the image has.
func (i image) contain(t *testing.T, env ...string) *exec.Cmd {
	t.Helper()
	if err := os.Mkdir(filepath.Join(i.root, "proc"), 0o755); err != nil {
		t.Fatal(err)
	}
	null := filepath.Join(i.root, "dev", "null")
	if err := errors.Join(os.Mkdir(filepath.Dir(null), 0o755), syscall.Mknod(null, syscall.S_IFCHR, 1<<8|3), os.Chmod(null, 0o666)); err != nil {
		t.Fatal(err)
	}
	args := []string{"--mount", "--pid", "--fork", "--kill-child", "--mount-proc=" + filepath.Join(i.root, "proc")}
	if out, err := exec.Command("unshare", append(args, "true")...).CombinedOutput(); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatalf("unshare: %v, %s", err, out)
		}
		t.Skipf("no namespaces may be made here: %v, %s", err, out)
	}
	args = append(append(args, "chroot", "--userspec=65532:65532", i.root), i.command...)
	cmd := exec.Command("unshare", args...)
	cmd.Env = append(append([]string{"PATH=" + os.Getenv("PATH")}, i.env...), env...)
	return cmd
}

// The image is the binary alone: built by the Dockerfile's own line, it works in an empty root, as
// nobody, without zones, a shell or a C library.
func TestProveBinaryWorksInAnEmptyRoot(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root may change the root directory")
	}
	asked := make(chan struct{}, 100)
	secure := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked <- struct{}{} }))
	t.Cleanup(secure.Close)
	i := buildImage(t, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: secure.Certificate().Raw}))
	listen := freeAddress(t)
	env := []string{"DATABASE_URL=" + pgtest.URL(t), "ROTA_LISTEN=" + listen}
	in := func(args ...string) (string, error) {
		out, err := i.run(env, append([]string{"/scheduler"}, args...)...).CombinedOutput()
		return string(out), err
	}
	if out, err := in("version"); err != nil || strings.TrimSpace(out) != "1.2.3" {
		t.Errorf("version: %v, %s", err, out)
	}
	if out, err := in("check"); err != nil || !strings.Contains(out, "are well") {
		t.Errorf("check: %v, %s", err, out)
	}
	if out, err := i.run(env, i.health...).CombinedOutput(); err == nil || !strings.Contains(string(out), listen) {
		t.Errorf("the health check without a replica: %v, %s", err, out)
	}

	// The certificates are found: a server that they vouch for is asked.
	watch := i.run(env, "/scheduler", "watch", "--url", secure.URL)
	var said bytes.Buffer
	watch.Stderr = &said
	if err := watch.Start(); err != nil {
		t.Fatal(err)
	}
	select {
	case <-asked:
	case <-time.After(20 * time.Second):
		t.Errorf("no request came over TLS: %s", said.String())
	}
	_ = watch.Process.Kill()
	_ = watch.Wait()

	serveImage(t, i, env, listen)
}

// serveImage starts the image's command, and sees it serve, be healthy, and stop when it is told to.
func serveImage(t *testing.T, i image, env []string, listen string) {
	t.Helper()
	serve := i.contain(t, env...)
	var log bytes.Buffer
	serve.Stderr = &log
	if err := serve.Start(); err != nil {
		t.Fatal(err)
	}
	gone := make(chan error, 1)
	go func() { gone <- serve.Wait() }()
	t.Cleanup(func() { _ = serve.Process.Kill() })
	var out []byte
	err := fmt.Errorf("never asked")
	for deadline := time.Now().Add(30 * time.Second); err != nil && time.Now().Before(deadline); {
		select {
		case ended := <-gone:
			t.Fatalf("%v: %s", ended, log.String())
		case <-time.After(50 * time.Millisecond):
			out, err = i.run(env, append(i.health, "readyz")...).CombinedOutput()
		}
	}
	if err != nil {
		t.Fatalf("it is not ready: %v, %s", err, out)
	}
	if out, err := i.run(env, i.health...).CombinedOutput(); err != nil {
		t.Errorf("the health check: %v, %s", err, out)
	}
	res, err := http.Get("http://" + listen + "/") //nolint:noctx // it is on this machine
	if err != nil || res.StatusCode != http.StatusOK {
		t.Fatalf("the page: %v, %v", err, res)
	}
	_ = res.Body.Close()
	children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", serve.Process.Pid, serve.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	first, err := strconv.Atoi(strings.TrimSpace(string(children)))
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(first, syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-gone:
		if err != nil || !strings.Contains(log.String(), `"level":"INFO"`) {
			t.Errorf("told to stop, it ends with %v: %s", err, log.String())
		}
	case <-time.After(40 * time.Second):
		t.Error("told to stop, it goes on")
	}
}

// freeAddress is one on which nothing listens.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}
