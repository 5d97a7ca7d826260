package cron

import (
	"errors"
	"fmt"
	"math/bits"
	"regexp"
	"slices"
	"strings"

	robfig "github.com/robfig/cron/v3"
)

// star is the library's mark for a field that is unrestricted.
const star = 1 << 63

// fields are what a spec allows, a bit for each value. Those of the days keep their star.
type fields struct {
	second, minute, hour, dom, month, dow uint64

	// elapsed is set where the minute or the hour starts with * or ?: such a schedule follows
	// elapsed time, and not the wall clock, through a change of the offset.
	elapsed bool
}

var descriptors = map[string]bool{
	"@yearly": true, "@annually": true, "@monthly": true, "@weekly": true, "@daily": true, "@midnight": true, "@hourly": true,
}

// fieldPattern is a list of *, ?, values and ranges, each with a step or without. The parser checks
// the values; it would take signs and empty parts too.
var fieldPattern = func() *regexp.Regexp {
	const value = `(?:[0-9]{1,2}|[A-Za-z]{3})`
	const part = `(?:[*?]|` + value + `(?:-` + value + `)?)(?:/[0-9]{1,4})?`
	return regexp.MustCompile(`^` + part + `(?:,` + part + `)*$`)
}()

// check is stricter than the parser. Of a spec that is no descriptor it takes as many fields as one
// of counts says.
func check(texts []string, counts []int) error {
	if len(texts) == 0 {
		return errors.New("it is empty: give it five fields, six with seconds, or @daily and the like")
	}
	if first := texts[0]; strings.HasPrefix(first, "@") {
		switch {
		case first == "@reboot":
			return errors.New("@reboot has no meaning where leaders change: use Continuous, or a time")
		case first == "@every":
			return errors.New("@every is not a cron schedule here: use Every")
		case !descriptors[first] || len(texts) > 1:
			return errors.New("the descriptors are @yearly, @annually, @monthly, @weekly, @daily, @midnight and @hourly, alone and in small letters")
		}
		return nil
	}
	if strings.HasPrefix(texts[0], "TZ=") {
		return errors.New("a zone is given by CRON_TZ=")
	}
	if n := len(texts); !slices.Contains(counts, n) {
		return fmt.Errorf("it has %d fields: it must have five (minute, hour, day, month, weekday), or six with seconds first", n)
	}
	for _, text := range texts {
		if !fieldPattern.MatchString(text) {
			return fmt.Errorf("field %q: it must be numbers, names of three letters, ranges and steps such as 5, 1-5, */10 or MON,WED", text)
		}
	}
	return nil
}

const standard = robfig.Minute | robfig.Hour | robfig.Dom | robfig.Month | robfig.Dow | robfig.Descriptor

// parseFields calls the library's parser, which has panicked before on what nobody had thought of.
func parseFields(texts []string) (_ fields, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the parser cannot read it: %v", p)
		}
	}()
	options := standard
	if len(texts) == 6 {
		options |= robfig.Second
	}
	parsed, err := robfig.NewParser(options).Parse(strings.Join(texts, " "))
	if err != nil {
		return fields{}, err
	}
	s, ok := parsed.(*robfig.SpecSchedule)
	if !ok {
		return fields{}, fmt.Errorf("it is a %T", parsed)
	}
	return fields{
		second: s.Second &^ star, minute: s.Minute &^ star, hour: s.Hour &^ star, month: s.Month &^ star,
		dom: s.Dom, dow: s.Dow, elapsed: followsElapsedTime(texts),
	}, nil
}

// followsElapsedTime looks at the text, because the library has no star for */5, and cron has.
func followsElapsedTime(texts []string) bool {
	if len(texts) == 1 {
		return texts[0] == "@hourly"
	}
	clock := texts[len(texts)-5:][:2]
	return slices.ContainsFunc(clock, func(text string) bool { return strings.ContainsAny(text[:1], "*?") })
}

// none is above every value of a field.
const none = 64

// next is the field's first value from one on; none where there is none.
func next(field uint64, from int) int { return bits.TrailingZeros64(field &^ (1<<from - 1)) }

// has says whether the field allows a value.
func has(field uint64, value int) bool { return field>>value&1 == 1 }
