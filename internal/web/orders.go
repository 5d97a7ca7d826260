package web

import (
	"fmt"
	"net/url"
	"strings"

	"rota/internal/status"
)

// An order is something that an operator may do, and the address of the form for it.
type order struct {
	Name, Label, Path string
}

// order is one whose form leads back to the page that offers it.
func (b bearings) order(name, label, path string) order {
	and := "?"
	if strings.Contains(path, "?") {
		and = "&"
	}
	return order{name, label, path + and + "back=" + url.QueryEscape(b.here)}
}

// ordersOf are those that may be given about a lease and its job.
func (b bearings) ordersOf(l *status.Lease) []order {
	if !b.can.Operate {
		return nil
	}
	var all []order
	job, lease := jobPath(l.Job), "/leases/"+segment(l.Name)
	if l.CompiledIn && !l.Disabled && !unbroken(*l) {
		path := job + "/run"
		if l.Of > 1 {
			path += fmt.Sprintf("?shard=%d", l.Shard)
		}
		all = append(all, b.order("run", "Run now", path))
	}
	if l.Paused != nil && l.Paused.Job != status.AllJobs {
		all = append(all, b.order("resume", "Resume", job+"/resume"))
	} else {
		all = append(all, b.order("pause", "Pause", job+"/pause"))
	}
	if l.State == status.Held {
		all = append(all, b.order("step-down", "Step down", lease+"/step-down"))
	}
	if b.can.Admin && l.Epoch > 0 {
		all = append(all, b.order("revoke", "Revoke", lease+"/revoke"))
	}
	return all
}

// A steering is what may be done about all jobs at once.
type steering struct{ Orders []order }

func (b bearings) steering(snap status.Snapshot) steering {
	if !b.can.Admin || len(snap.Leases) == 0 {
		return steering{}
	}
	if len(snap.Pauses) > 0 && snap.Pauses[0].Job == status.AllJobs {
		return steering{[]order{b.order("resume-all", "Resume all jobs", "/resume")}}
	}
	return steering{[]order{b.order("pause-all", "Pause all jobs", "/pause")}}
}
