package scheduler

import (
	"context"
	"errors"
	"time"

	"rota/internal/registry"
)

// Once calls the job's function once, the way a lead calls it, with a context that ends with the
// given one, and returns what it returned; for a panic, an error with its stack. It claims nothing
// and records nothing. It is for tests of jobs; see internal/jobtest.
func Once(term context.Context, j registry.Job, r *registry.Run) error {
	d := duty{job: j, run: r, grace: time.Hour, draining: func() {}, abandon: func() {}}
	res := d.do(term)
	switch {
	case res.panic != "":
		return errors.New(res.panic)
	case res.err != nil:
		return res.err
	}
	return res.cause
}
