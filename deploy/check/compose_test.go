package check

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/compose-spec/compose-go/v2/cli"
	"github.com/compose-spec/compose-go/v2/types"
)

func composed(t *testing.T) *types.Project {
	t.Helper()
	options, err := cli.NewProjectOptions([]string{filepath.Join("..", "compose.yaml")}, cli.WithName("rota"))
	if err != nil {
		t.Fatal(err)
	}
	project, err := options.LoadProject(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return project
}

func TestComposeFileIsWhatComposeReads(t *testing.T) {
	t.Parallel()
	project := composed(t)
	names := project.ServiceNames()
	slices.Sort(names)
	if !slices.Equal(names, []string{"grafana", "postgres", "prometheus", "rota"}) {
		t.Errorf("the services are %v", names)
	}
	for _, s := range project.Services {
		for _, v := range s.Volumes {
			if v.Type != types.VolumeTypeBind {
				continue
			}
			if info, err := os.Stat(v.Source); err != nil || info.IsDir() {
				t.Errorf("%s mounts %s, which is no file here: %v", s.Name, v.Source, err)
			}
		}
		for _, p := range s.Ports {
			if p.HostIP != "127.0.0.1" {
				t.Errorf("%s is reached from other hosts at %s:%s", s.Name, p.HostIP, p.Published)
			}
		}
	}
	rota := project.Services["rota"]
	if rota.Deploy == nil || rota.Deploy.Replicas == nil || *rota.Deploy.Replicas != 3 {
		t.Error("there are not three replicas")
	}
	if _, err := os.Stat(filepath.Join(rota.Build.Context, rota.Build.Dockerfile)); err != nil {
		t.Error(err)
	}
	// The drain and the grace are the defaults.
	if given := time.Duration(*rota.StopGracePeriod); given < 28*time.Second+margin {
		t.Errorf("a replica is given %v to stop", given)
	}
}
