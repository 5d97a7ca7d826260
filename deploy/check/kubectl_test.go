package check

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	apps "k8s.io/api/apps/v1"
	batch "k8s.io/api/batch/v1"
	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
)

var kubectlLine = regexp.MustCompile("(?m)(?:^(?:# +)?|`)(kubectl [^`\n]+)")

// kubectlLines are the commands for a cluster that the documents and the manifests name, in their order.
func kubectlLines(t *testing.T) []string {
	t.Helper()
	var all []string
	for _, pattern := range []string{"deploy/*.md", "*.md", "docs/*.md", "docs/runbooks/*.md", "deploy/kubernetes/*/*.yaml"} {
		files, err := filepath.Glob(filepath.Join("..", "..", pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range kubectlLine.FindAllStringSubmatch(string(text), -1) {
				if line := strings.TrimSpace(m[1]); !slices.Contains(all, line) {
					all = append(all, line)
				}
			}
		}
	}
	if len(all) < 6 {
		t.Fatalf("only %d lines: %v", len(all), all)
	}
	return all
}

// kubectl is the real one, against the cluster.
type kubectl struct {
	exe, config string
	minor       int
}

func (c *cluster) kubectl(t *testing.T) kubectl {
	t.Helper()
	exe, err := exec.LookPath("kubectl")
	if err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal("kubectl is missing")
		}
		t.Skip("kubectl is missing")
	}
	k := kubectl{exe: exe, config: filepath.Join(t.TempDir(), "config")}
	config := `{"apiVersion":"v1","kind":"Config","current-context":"c","contexts":[{"name":"c","context":{"cluster":"c","user":"u"}}],` +
		`"users":[{"name":"u","user":{}}],"clusters":[{"name":"c","cluster":{"server":"` + c.URL + `"}}]}`
	if err := os.WriteFile(k.config, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	var said struct{ ClientVersion struct{ Minor string } }
	if err := json.Unmarshal([]byte(k.run(t, nil, exe, "version", "--client", "-o", "json")), &said); err != nil {
		t.Fatal(err)
	}
	if k.minor, err = strconv.Atoi(strings.TrimRight(said.ClientVersion.Minor, "+")); err != nil {
		t.Fatal(err)
	}
	return k
}

func (k kubectl) run(t *testing.T, stdin []byte, args ...string) string {
	t.Helper()
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Dir, cmd.Stdin = filepath.Join("..", ".."), bytes.NewReader(stdin)
	cmd.Env = []string{"PATH=" + filepath.Dir(k.exe) + ":" + os.Getenv("PATH"), "KUBECONFIG=" + k.config, "HOME=" + filepath.Dir(k.config)}
	var out, talk bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &talk
	if err := cmd.Run(); err != nil {
		t.Errorf("%s: %v\n%s", strings.Join(args, " "), err, talk.Bytes())
	}
	return out.String()
}

// line runs a line of a document. Before 1.22 the kustomize in kubectl did not know all that ours use:
// such a one is given what a newer one makes of them.
func (k kubectl) line(t *testing.T, line string) string {
	t.Helper()
	args := strings.Fields(line)
	if dir, ok := strings.CutPrefix(line, "kubectl apply -k "); ok && k.minor < 22 {
		made, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), filepath.Join("..", "..", dir))
		if err != nil {
			t.Fatal(err)
		}
		text, err := made.AsYaml()
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("kubectl 1.%d is given what kustomize makes of %s", k.minor, dir)
		return k.run(t, text, "kubectl", "apply", "-f", "-")
	}
	return k.run(t, nil, args...)
}

// The lines of the documents, run in their order by the real kubectl, install all of the example, and
// the secrets that it needs.
func TestKubectlLinesOfTheDocumentsInstallRota(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	k := c.kubectl(t)
	all := build(t, "example")
	space := the[*apps.Deployment](t, all, "Deployment rota").Namespace
	for _, line := range kubectlLines(t) {
		k.line(t, line)
	}
	wanted := map[string]bool{"Namespace " + space: true}
	for name, object := range all {
		wanted[name] = true
		if in := object.(meta.Object).GetNamespace(); in != space {
			t.Errorf("%s is in the namespace %q, the deployment in %q", name, in, space)
		}
	}
	for _, pod := range []core.PodSpec{
		the[*apps.Deployment](t, all, "Deployment rota").Spec.Template.Spec,
		the[*batch.Job](t, all, "Job rota-migrate").Spec.Template.Spec,
	} {
		for _, e := range pod.Containers[0].Env {
			if e.ValueFrom == nil || e.ValueFrom.SecretKeyRef == nil {
				continue
			}
			ref := e.ValueFrom.SecretKeyRef
			wanted["Secret "+ref.Name] = true
			secret := c.objects["/api/v1/namespaces/"+space+"/secrets/"+ref.Name]
			if data, _ := secret["data"].(map[string]any); data[ref.Key] == nil {
				t.Errorf("no document makes the key %s of the secret %s", ref.Key, ref.Name)
			}
		}
	}
	made := map[string]bool{}
	for at, object := range c.objects {
		if strings.HasPrefix(at+"/", "/api/v1/namespaces/default/") {
			continue
		}
		name := object["kind"].(string) + " " + object["metadata"].(map[string]any)["name"].(string)
		made[name] = true
		if !wanted[name] {
			t.Errorf("%s is made, and no manifest has or uses it", name)
		}
	}
	for name := range wanted {
		if !made[name] {
			t.Errorf("no line made %s", name)
		}
	}
	if !slices.Contains(c.requests, "GET /api/v1/namespaces/"+space+"/pods") {
		t.Errorf("no line asked for the pods")
	}
	if k.minor >= 27 && len(c.lenient) > 0 {
		t.Errorf("their fields were not checked: %v", c.lenient)
	}
}

// What was applied is left as it is when it is applied again.
func TestExampleAppliedAgainChangesNothing(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	k := c.kubectl(t)
	k.line(t, "kubectl create namespace rota")
	first := k.line(t, "kubectl apply -k deploy/kubernetes/example")
	c.requests = nil
	again := k.line(t, "kubectl apply -k deploy/kubernetes/example")
	if n := len(build(t, "example")); strings.Count(first, " created\n") != n || strings.Count(again, "\n") != n || strings.Contains(again, " created\n") {
		t.Errorf("of %d objects:\n%s%s", n, first, again)
	}
	for _, r := range c.requests {
		if !strings.HasPrefix(r, "GET ") && !strings.Contains(r, "/poddisruptionbudgets/") {
			t.Errorf("it asks for %s", r)
		}
	}
}
