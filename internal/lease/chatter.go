package lease

import "log/slog"

// linesPerBeat is how many lines about single leases are logged from one heartbeat to the next. A
// replica may lead thousands, and lose them all at once.
const linesPerBeat = 20

// A chatter logs what happens to single leases, and counts what would be too much.
type chatter struct {
	log   *slog.Logger
	said  int
	muted map[string]int
}

func (c *chatter) say(msg string, args ...any) {
	if c.said < linesPerBeat {
		c.said++
		c.log.Info(msg, args...)
		return
	}
	if c.muted == nil {
		c.muted = map[string]int{}
	}
	c.muted[msg]++
}

// breathe says what was counted and begins anew.
func (c *chatter) breathe() {
	for msg, n := range c.muted {
		c.log.Info(msg, "further_leases", n)
	}
	c.said, c.muted = 0, nil
}
