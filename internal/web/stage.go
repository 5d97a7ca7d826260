package web

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/go-chi/chi/v5"

	"rota/internal/status"
)

// A Stage is what dev plays on: replicas of its own, and what may befall them. The page shows its scene
// over the jobs and the replicas, and has an act played for whoever presses a button.
type Stage interface {
	// Scene is how far the play has come.
	Scene() Scene
	// Play does one of the acts that the scene offers, and returns what is to come of it in one line.
	Play(ctx context.Context, act, replica string) (notice string, err error)
}

// A Scene is what is played, what of it has been seen, and what may be done now.
type Scene struct {
	Title   string
	Steps   []Step
	Players []Player
	Told    []Told // the newest first
}

// A Step is one sentence of what is to be seen.
type Step struct {
	State string // StepDone, StepNow, StepNext or StepBad
	Text  string
	Until time.Time // when it will be over, by the database's clock; zero: nobody knows
}

// The states of a step.
const (
	StepDone = "done" // seen
	StepNow  = "now"  // what is waited for, or is to be done next
	StepNext = "next" // what comes after
	StepBad  = "bad"  // not as promised
)

// A Player is a replica of the stage.
type Player struct {
	Name, Owner string
	State       string // in a word
	Well        bool   // nothing has befallen it
	Acts        []Act
}

// An Act is what may be done to a player now. An act and the one that undoes it share a button.
type Act struct{ Name, Label, Button string }

// Told is a line that the terminal tells.
type Told struct {
	At   time.Time
	Line string
}

const actPath = "/dev/{replica}/{act}"

// stagePages are those that show the scene.
var stagePages = []string{"jobs", "replicas"}

// play has an act played, and leads back to where the button was.
func (s *server) play(w http.ResponseWriter, r *http.Request) error {
	if _, err := readForm(r, nil); err != nil {
		return err
	}
	name, act := param(r, "replica"), param(r, "act")
	players := s.Stage.Scene().Players
	i := slices.IndexFunc(players, func(p Player) bool { return p.Name == name })
	if i < 0 {
		return refusal{http.StatusNotFound, fmt.Sprintf("There is no replica %q on the stage.", clip(name, 100)), "The page has those there are."}
	}
	if !slices.ContainsFunc(players[i].Acts, func(a Act) bool { return a.Name == act }) {
		return refusal{http.StatusConflict, fmt.Sprintf("%s is %s: %q cannot be done to it now.", name, players[i].State, clip(act, 100)), "The page has what can."}
	}
	ctx, cancel := detached(r)
	defer cancel()
	notice, err := s.Stage.Play(ctx, act, name)
	if err != nil {
		return refusal{http.StatusConflict, clip(err.Error(), 300) + ".", "The page has what can be done now."}
	}
	leaveNotice(w, notice)
	w.Header().Set("Location", back(r))
	w.WriteHeader(http.StatusSeeOther)
	return nil
}

// stageRoutes are there only where there is a stage.
func (s *server) stageRoutes(r chi.Router) {
	if s.Stage != nil {
		r.With(s.need(Operator, nil), s.understand).Post(actPath, s.handle(s.play))
	}
}

// A sceneView is the scene over a snapshot.
type sceneView struct {
	Title   string
	Now     string // the step that has come, for those who hear the page
	Steps   []stepView
	Players []playerView
	Told    []toldView
}

type stepView struct {
	State, Icon, Word string
	Text              string
	Left              *instant
}

type playerView struct {
	Name, State string
	Mark        mark
	Leads       string
	Acts        []actView
}

type actView struct {
	Key, Path, Label, Back string
}

type toldView struct {
	When *instant
	Line string
}

var stepMarks = map[string][2]string{
	StepDone: {"✓", "seen"}, StepNow: {"▶", "now"}, StepNext: {"·", "to come"}, StepBad: {"✗", "not as promised"},
}

// sceneOf is the scene as the page shows it, with what each player leads by the rows.
func sceneOf(scene Scene, snap status.Snapshot, b bearings) *sceneView {
	v := &sceneView{Title: scene.Title}
	for _, step := range scene.Steps {
		m := stepMarks[step.State]
		sv := stepView{State: step.State, Icon: m[0], Word: m[1], Text: step.Text}
		if step.State == StepNow {
			v.Now = step.Text
			sv.Left = left(step.Until, snap.AsOf)
		}
		v.Steps = append(v.Steps, sv)
	}
	for _, p := range scene.Players {
		v.Players = append(v.Players, playerOf(p, snap, b))
	}
	for _, told := range scene.Told {
		v.Told = append(v.Told, toldView{ago(told.At, snap.AsOf), told.Line})
	}
	return v
}

func playerOf(p Player, snap status.Snapshot, b bearings) playerView {
	v := playerView{Name: p.Name, Mark: mark{Class: "good", Icon: "●", Word: p.State}}
	if !p.Well {
		v.Mark = mark{Class: "warn", Icon: "▲", Word: p.State}
	}
	for _, r := range snap.Replicas {
		if p.Well && r.ID == p.Owner && r.Standing == status.Draining {
			v.Mark = standings[status.Draining]
			if r.Leases == 0 {
				v.Mark.Word, v.Mark.Title = "drained", "it has given up all it led, and takes nothing until it is started again"
			}
		}
	}
	n := 0
	for _, l := range snap.Leases {
		if l.State == status.Held && l.Owner == p.Owner && p.Owner != "" {
			if n++; n > 1 {
				v.Leads += ", "
			}
			v.Leads += l.Name
		}
	}
	if !b.can.Operate {
		return v
	}
	for _, a := range p.Acts {
		v.Acts = append(v.Acts, actView{
			Key:  p.Name + "-" + a.Button, // so that it keeps the focus
			Path: "/dev/" + segment(p.Name) + "/" + url.PathEscape(a.Name), Label: a.Label, Back: b.here,
		})
	}
	return v
}
