package cron

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"time"
)

// A generator makes entries that are likely to be due around a change of the clock.
type generator struct {
	*rand.Rand
	before, after time.Time // what the clock shows just before the change, and at it
}

// newGenerator makes the same entries for the same seed and watch, whatever else is generated.
func newGenerator(seed uint64, w *watch) *generator {
	in, _ := location(w.zone)
	var mixed uint64 = 14695981039346656037
	for _, b := range []byte(fmt.Sprint(w.zone, w.change)) {
		mixed = (mixed ^ uint64(b)) * 1099511628211
	}
	return &generator{
		Rand:   rand.New(rand.NewPCG(seed, mixed)),
		before: time.Unix(w.change-1, 0).In(in),
		after:  time.Unix(w.change, 0).In(in),
	}
}

var (
	monthNames   = strings.Fields("- jan feb mar apr may jun jul aug sep oct nov dec")
	weekdayNames = strings.Fields("sun mon tue wed thu fri sat")
)

func (g *generator) entry(seconds bool) entry {
	near := func(before, after int) []int { return []int{before, after, (before + after) / 2} }
	e := entry{second: single(0), seconds: seconds}
	if seconds {
		e.second = g.column(0, 59, nil, near(0, 59), 40)
	}
	e.minute = g.column(0, 59, nil, []int{0, 15, 30, 45, 59, g.before.Minute(), g.after.Minute()}, 20)
	e.hour = g.column(0, 23, nil, near(g.before.Hour(), g.after.Hour()), 20)
	e.date = g.column(1, 31, nil, near(g.before.Day(), g.after.Day()), 60)
	e.month = g.column(1, 12, monthNames, near(int(g.before.Month()), int(g.after.Month())), 75)
	e.weekday = g.column(0, 6, weekdayNames, near(int(g.before.Weekday()), int(g.after.Weekday())), 60)
	return e
}

// single is a column of one value.
func single(value int) column {
	c := column{text: fmt.Sprint(value)}
	c.allows[value] = true
	return c
}

// column is a star in so many of 100 cases, and else one, two or three parts of all sorts, often
// with a value from near.
func (g *generator) column(least, most int, names []string, near []int, stars int) column {
	var c column
	parts := 1
	if g.IntN(100) < stars {
		c.add([]string{"*", "?"}[g.IntN(2)], least, most, 1, true)
		return c
	}
	if g.IntN(4) == 0 {
		parts += 1 + g.IntN(2)
	}
	for range parts {
		g.part(&c, least, most, names, near)
	}
	return c
}

func (g *generator) part(c *column, least, most int, names []string, near []int) {
	value := func() int {
		if g.IntN(2) == 0 {
			return near[g.IntN(len(near))]
		}
		return least + g.IntN(most-least+1)
	}
	say := func(v int) string {
		if names == nil || g.IntN(2) == 0 {
			return fmt.Sprint(v)
		}
		if g.IntN(2) == 0 {
			return strings.ToUpper(names[v])
		}
		return names[v]
	}
	low, high, step := value(), value(), 1+g.IntN(most+5)
	if low > high {
		low, high = high, low
	}
	switch g.IntN(6) {
	case 0: // as for one in two columns with a step, a step that is usual
		step = []int{1, 2, 5, 15, 30}[g.IntN(5)]
		fallthrough
	case 1:
		c.add(fmt.Sprintf("*/%d", step), least, most, step, step == 1)
	case 2:
		c.add(fmt.Sprintf("%s-%s", say(low), say(high)), low, high, 1, false)
	case 3:
		c.add(fmt.Sprintf("%s-%s/%d", say(low), say(high), step), low, high, step, false)
	case 4:
		c.add(fmt.Sprintf("%s/%d", say(low), step), low, most, step, false)
	default:
		c.add(say(low), low, low, 1, false)
	}
}

func (c *column) add(text string, low, high, step int, star bool) {
	if c.text != "" {
		c.text += ","
	}
	c.text += text
	c.star = c.star || star
	for v := low; v <= high; v += step {
		c.allows[v] = true
	}
}
