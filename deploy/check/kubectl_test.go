package check

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	apps "k8s.io/api/apps/v1"
	batch "k8s.io/api/batch/v1"
	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var kubectlLine = regexp.MustCompile("(?m)(?:^|`)(kubectl [^`\n]+)")

// kubectlLines are the commands for a cluster that the documents name, each with its document.
func kubectlLines(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	root := filepath.Join("..", "..")
	for _, pattern := range []string{"*.md", "deploy/*.md", "docs/*.md", "docs/runbooks/*.md"} {
		files, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range kubectlLine.FindAllStringSubmatch(string(text), -1) {
				all[strings.TrimSpace(m[1])] = file
			}
		}
	}
	if len(all) < 5 {
		t.Fatalf("only %d lines: %v", len(all), all)
	}
	return all
}

// A cluster is what the commands have made of it.
type cluster struct {
	namespace string              // of the example
	secrets   map[string][]string // their keys
	applied   []string            // directories
}

// obey takes a command as kubectl would, as far as the documents go.
func (c *cluster) obey(line string) error {
	args := strings.Fields(line)[1:]
	if len(args) > 2 && args[0] == "-n" {
		if args[1] != c.namespace {
			return fmt.Errorf("the namespace of the example is %s", c.namespace)
		}
		args = args[2:]
	}
	switch cmd := strings.Join(args, " "); {
	case cmd == "create namespace "+c.namespace, cmd == "get pods" && strings.Contains(line, " -n "):
	case strings.HasPrefix(cmd, "create secret generic ") && len(args) == 5:
		key, ok := strings.CutPrefix(args[4], "--from-literal=")
		if !ok {
			return fmt.Errorf("what is %s?", args[4])
		}
		key, _, _ = strings.Cut(key, "=")
		c.secrets[args[3]] = append(c.secrets[args[3]], key)
	case strings.HasPrefix(cmd, "apply -k ") && len(args) == 3:
		if _, err := os.Stat(filepath.Join("..", "..", args[2], "kustomization.yaml")); err != nil {
			return err
		}
		c.applied = append(c.applied, args[2])
	default:
		return fmt.Errorf("this test does not know %q", cmd)
	}
	return nil
}

// No cluster is here to run them: what they name is held to the manifests, and what the manifests need
// to them.
func TestKubectlLinesOfTheDocumentsFitTheManifests(t *testing.T) {
	t.Parallel()
	all := build(t, "example")
	c := &cluster{namespace: the[*apps.Deployment](t, all, "Deployment rota").Namespace, secrets: map[string][]string{}}
	for name, object := range all {
		if in := object.(meta.Object).GetNamespace(); in != c.namespace {
			t.Errorf("%s is in the namespace %q, the deployment in %q", name, in, c.namespace)
		}
	}
	for line, file := range kubectlLines(t) {
		if err := c.obey(line); err != nil {
			t.Errorf("%s: %s: %v", file, line, err)
		}
	}
	if !slices.Equal(c.applied, []string{"deploy/kubernetes/example"}) {
		t.Errorf("applied are %q", c.applied)
	}
	used := map[string]bool{}
	for _, pod := range []core.PodSpec{
		the[*apps.Deployment](t, all, "Deployment rota").Spec.Template.Spec,
		the[*batch.Job](t, all, "Job rota-migrate").Spec.Template.Spec,
	} {
		for _, e := range pod.Containers[0].Env {
			if e.ValueFrom == nil || e.ValueFrom.SecretKeyRef == nil {
				continue
			}
			ref := e.ValueFrom.SecretKeyRef
			used[ref.Name] = true
			if !slices.Contains(c.secrets[ref.Name], ref.Key) {
				t.Errorf("no document makes the key %s of the secret %s", ref.Key, ref.Name)
			}
		}
	}
	for name := range c.secrets {
		if !used[name] {
			t.Errorf("the secret %s is made and nothing uses it", name)
		}
	}
}
