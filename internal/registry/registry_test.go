package registry

import (
	"strings"
	"testing"
)

func TestJobsKnowsWhereEachWasRegistered(t *testing.T) {
	before := registered
	defer func() { registered = before }()
	registered = nil

	Register(Job{}) // it only stores: what is wrong with it is said by Jobs
	Register(good("x"))
	_, err := Jobs()
	if err == nil || !strings.Contains(err.Error(), `job "" (internal/registry/registry_test.go:13)`) {
		t.Errorf("error is %v", err)
	}
	registered = registered[1:]
	jobs, err := Jobs()
	if err != nil || len(jobs) != 1 || jobs[0].Source != "internal/registry/registry_test.go:14" {
		t.Errorf("jobs are %v, error %v", jobs, err)
	}
}
