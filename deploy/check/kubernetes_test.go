package check

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	apps "k8s.io/api/apps/v1"
	batch "k8s.io/api/batch/v1"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	policy "k8s.io/api/policy/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/json"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"
)

// kinds are the types that our manifests may be of.
var kinds = map[string]func() any{
	"apps/v1 Deployment":                      func() any { return new(apps.Deployment) },
	"batch/v1 Job":                            func() any { return new(batch.Job) },
	"v1 ServiceAccount":                       func() any { return new(core.ServiceAccount) },
	"v1 Service":                              func() any { return new(core.Service) },
	"policy/v1 PodDisruptionBudget":           func() any { return new(policy.PodDisruptionBudget) },
	"networking.k8s.io/v1 NetworkPolicy":      func() any { return new(networking.NetworkPolicy) },
	"monitoring.coreos.com/v1 PodMonitor":     func() any { return new(monitoring.PodMonitor) },
	"monitoring.coreos.com/v1 PrometheusRule": func() any { return new(monitoring.PrometheusRule) },
}

// build makes the manifests of a directory, and decodes each as its type: a field that the type does
// not have is an error, where a cluster would drop it in silence.
func build(t *testing.T, dir string) map[string]any {
	t.Helper()
	made, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), filepath.Join("..", "kubernetes", dir))
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]any{}
	for _, r := range made.Resources() {
		kind := strings.TrimSpace(r.GetApiVersion() + " " + r.GetKind())
		form, known := kinds[kind]
		if !known {
			t.Fatalf("%s: what is a %s?", r.GetName(), kind)
		}
		text, err := r.AsYAML()
		if err != nil {
			t.Fatal(err)
		}
		object := form()
		decode(t, kind+" "+r.GetName(), text, object)
		all[r.GetKind()+" "+r.GetName()] = object
	}
	return all
}

// decode reads as a cluster does: unlike Go's own, its decoder tells capital letters from small ones.
func decode(t *testing.T, name string, text []byte, object any) {
	t.Helper()
	raw, err := yaml.YAMLToJSONStrict(text)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	strict, err := json.UnmarshalStrict(raw, object)
	for _, err := range append(strict, err) {
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func the[T any](t *testing.T, all map[string]any, name string) T {
	t.Helper()
	object, ok := all[name].(T)
	if !ok {
		t.Fatalf("there is no %s: %v", name, reflect.ValueOf(all).MapKeys())
	}
	return object
}

func TestManifestsAreWhatKubernetesReads(t *testing.T) {
	t.Parallel()
	for dir, want := range map[string]int{"base": 5, "example": 8} {
		if all := build(t, dir); len(all) != want {
			t.Errorf("%s has %d objects, want %d", dir, len(all), want)
		}
	}
}

func variables(c core.Container) map[string]string {
	all := map[string]string{}
	for _, e := range c.Env {
		all[e.Name] = e.Value
	}
	return all
}

func duration(t *testing.T, text string) time.Duration {
	t.Helper()
	d, err := time.ParseDuration(text)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// margin is what a replica and its witness take beyond the drain and the grace: the last records,
// releases and the burial of what was left.
const margin = 6 * time.Second

func TestPodIsGivenTheTimeThatItsShutdownTakes(t *testing.T) {
	t.Parallel()
	pod := the[*apps.Deployment](t, build(t, "example"), "Deployment rota").Spec.Template.Spec
	env := variables(pod.Containers[0])
	sum := duration(t, env["ROTA_DRAIN"]) + duration(t, env["ROTA_GRACE"]) + margin
	if hook := pod.Containers[0].Lifecycle; hook != nil {
		t.Error("a preStop hook takes of the same time, and is not in the sum")
	}
	if given := time.Duration(*pod.TerminationGracePeriodSeconds) * time.Second; given < sum {
		t.Errorf("the pod is given %v, and its shutdown may take %v", given, sum)
	}
}

func TestPodsHaveNoRightsThatTheyDoNotNeed(t *testing.T) {
	t.Parallel()
	all := build(t, "example")
	for name, pod := range map[string]core.PodSpec{
		"the replica":   the[*apps.Deployment](t, all, "Deployment rota").Spec.Template.Spec,
		"the migration": the[*batch.Job](t, all, "Job rota-migrate").Spec.Template.Spec,
	} {
		c := pod.Containers[0]
		s := c.SecurityContext
		if !*pod.SecurityContext.RunAsNonRoot || *pod.SecurityContext.RunAsUser == 0 || *s.AllowPrivilegeEscalation || !*s.ReadOnlyRootFilesystem ||
			len(s.Capabilities.Drop) != 1 || s.Capabilities.Drop[0] != "ALL" || *pod.AutomountServiceAccountToken ||
			pod.SecurityContext.SeccompProfile.Type != core.SeccompProfileTypeRuntimeDefault {
			t.Errorf("%s has rights that it does not need", name)
		}
		if _, limited := c.Resources.Limits[core.ResourceCPU]; limited {
			t.Errorf("%s has a limit of CPU, which pauses a leader", name)
		}
		if c.Image != "registry.example/rota:1.0.0" {
			t.Errorf("%s is of the image %s", name, c.Image)
		}
	}
	if env := variables(the[*apps.Deployment](t, all, "Deployment rota").Spec.Template.Spec.Containers[0]); env["ROTA_MIGRATE"] != "check" || env["ROTA_ENVIRONMENT"] != "production" {
		t.Errorf("the patches did not take: %v", env)
	}
}

func TestSelectorsFindThePods(t *testing.T) {
	t.Parallel()
	all := build(t, "example")
	d := the[*apps.Deployment](t, all, "Deployment rota")
	pods := labels.Set(d.Spec.Template.Labels)
	for name, selector := range map[string]*meta.LabelSelector{
		"Deployment":          d.Spec.Selector,
		"Service":             {MatchLabels: the[*core.Service](t, all, "Service rota").Spec.Selector},
		"PodDisruptionBudget": the[*policy.PodDisruptionBudget](t, all, "PodDisruptionBudget rota").Spec.Selector,
		"NetworkPolicy":       &the[*networking.NetworkPolicy](t, all, "NetworkPolicy rota").Spec.PodSelector,
		"PodMonitor":          &the[*monitoring.PodMonitor](t, all, "PodMonitor rota").Spec.Selector,
		"spread over zones":   d.Spec.Template.Spec.TopologySpreadConstraints[0].LabelSelector,
		"spread over hosts":   d.Spec.Template.Spec.TopologySpreadConstraints[1].LabelSelector,
	} {
		s, err := meta.LabelSelectorAsSelector(selector)
		if err != nil || s.Empty() || !s.Matches(pods) {
			t.Errorf("%s: %v does not find the replicas' pods (%v)", name, selector, err)
		}
		if job := the[*batch.Job](t, all, "Job rota-migrate").Spec.Template.Labels; err == nil && s.Matches(labels.Set(job)) {
			t.Errorf("%s takes the migration's pod for a replica", name)
		}
	}
	budget := the[*policy.PodDisruptionBudget](t, all, "PodDisruptionBudget rota").Spec.MinAvailable.IntValue()
	if budget < 1 || budget >= int(*d.Spec.Replicas) {
		t.Errorf("of %d replicas %d must stay: none could be evicted, or all", *d.Spec.Replicas, budget)
	}
	port := d.Spec.Template.Spec.Containers[0].Ports[0].Name
	if p := the[*monitoring.PodMonitor](t, all, "PodMonitor rota").Spec.PodMetricsEndpoints[0].Port; p == nil || *p != port {
		t.Errorf("the pod monitor scrapes another port than %s", port)
	}
}

func TestRulesOfTheOperatorAreThoseOfPrometheus(t *testing.T) {
	t.Parallel()
	rule := the[*monitoring.PrometheusRule](t, build(t, "example"), "PrometheusRule rota")
	text, err := os.ReadFile(filepath.Join("..", "monitoring", "rules.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var want monitoring.PrometheusRuleSpec
	decode(t, "rules.yaml", text, &want)
	if !reflect.DeepEqual(rule.Spec, want) {
		t.Error("deploy/kubernetes/monitoring/prometheusrule.yaml has other rules than deploy/monitoring/rules.yaml")
	}
}
