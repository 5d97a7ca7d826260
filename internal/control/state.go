package control

import (
	"encoding/json"
	"time"
)

// A Kind is what a request asks for.
type Kind string

// The kinds of requests.
const (
	Run      Kind = "run"       // run a job now
	Cancel   Kind = "cancel"    // end a run
	StepDown Kind = "step_down" // give one term up
	Drain    Kind = "drain"     // give up all that a replica leads, for good
)

// A Request is what an operator asked for and no replica has settled yet.
type Request struct {
	ID      int64
	Kind    Kind
	Job     string          // empty for a drain
	Lease   string          // empty for a drain
	Epoch   int64           // the term that should step down; 0 otherwise
	Run     int64           // the run to cancel; 0 otherwise
	Replica string          // the owner that should drain; empty otherwise
	Args    json.RawMessage // a JSON object over the job's arguments; nil: as they are
	Reason  string          // may be empty for a run
	By      string          // who asked
	Made    time.Time       // by the database's clock; the tick of the run that is asked for
}

// A Pause keeps a job from taking ticks.
type Pause struct {
	Job    string // AllJobs: every job
	Reason string
	By     string
	At     time.Time
	Until  time.Time // zero: until it is resumed
}

// AllJobs stands for every job in a pause.
const AllJobs = "*"

// A State is what operators want of the replicas at one instant of the database's clock.
type State struct {
	AsOf     time.Time
	Requests []Request // those that nobody has settled, the oldest first
	Pauses   []Pause   // those in force
}

// Paused returns the pause of a job: its own before the one of all.
func (s State) Paused(job string) (Pause, bool) {
	var all Pause
	found := false
	for _, p := range s.Pauses {
		switch p.Job {
		case job:
			return p, true
		case AllJobs:
			all, found = p, true
		}
	}
	return all, found
}
