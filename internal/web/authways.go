package web

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"net/http"
	"slices"
	"strings"
	"sync"

	"golang.org/x/crypto/bcrypt"
)

// checks remembers which password each name came in with last, under a key that dies with the
// process, since bcrypt would take a core for a tenth of a second at every poll of every page. One
// comparison is made at a time, so that guessing leaves the other cores to the leases.
type checks struct {
	key  [32]byte
	busy chan struct{}

	mu   sync.Mutex
	last map[string][]byte
}

func newChecks() *checks {
	c := &checks{busy: make(chan struct{}, 1), last: map[string][]byte{}}
	_, _ = rand.Read(c.key[:]) // it never fails
	return c
}

func (c *checks) mark(a account, password string) []byte {
	h := hmac.New(sha256.New, c.key[:])
	h.Write(a.hash)
	h.Write([]byte{0})
	h.Write([]byte(password))
	return h.Sum(nil)
}

func (c *checks) known(a account, password string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return hmac.Equal(c.last[a.who.Name], c.mark(a, password))
}

// right compares in bcrypt's time, once nobody else does.
func (c *checks) right(ctx context.Context, a account, password string) (bool, error) {
	select {
	case c.busy <- struct{}{}:
	case <-ctx.Done():
		return false, context.Cause(ctx)
	}
	defer func() { <-c.busy }()
	if bcrypt.CompareHashAndPassword(a.hash, []byte(password)) != nil {
		return false, nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last[a.who.Name] = c.mark(a, password)
	return true, nil
}

// nobodysHash is compared where there is no such name, so that the time does not tell. Nothing has it.
var nobodysHash = sync.OnceValue(func() []byte {
	password := make([]byte, 32)
	_, _ = rand.Read(password)
	hash, err := bcrypt.GenerateFromPassword(password, bcrypt.DefaultCost)
	if err != nil {
		panic(err) // of a password too long, or a cost out of range
	}
	return hash
})

// longestPassword is what bcrypt looks at; the rest of a longer one would not count.
const longestPassword = 72

func (g *Gate) byPassword(r *http.Request, v *visit) (Who, error) {
	name, password, given := r.BasicAuth()
	if !given {
		return Who{}, errStranger
	}
	a := account{who: Who{Name: "\x00"}, hash: nobodysHash()}
	known := false
	for _, each := range g.accounts {
		if each.who.Name == name {
			a, known = each, true
		}
	}
	if known && g.checks.known(a, password) {
		return a.who, nil
	}
	if !g.failures.may(v.from) {
		return Who{}, errTooMany
	}
	ok, err := g.checks.right(r.Context(), a, password)
	switch {
	case err != nil:
		return Who{}, err
	case !ok || !known || len(password) > longestPassword:
		g.failures.add(v.from)
		return Who{}, errStranger
	}
	return a.who, nil
}

func (g *Gate) byToken(r *http.Request, v *visit) (Who, error) {
	kind, token, given := strings.Cut(r.Header.Get("Authorization"), " ")
	if !given || !strings.EqualFold(kind, "Bearer") {
		return Who{}, errStranger
	}
	hash := sha256.Sum256([]byte(strings.TrimSpace(token)))
	found := Who{}
	for _, a := range g.accounts { // all of them, so that the time does not tell which
		if subtle.ConstantTimeCompare(a.hash, hash[:]) == 1 {
			found = a.who
		}
	}
	if found.Role != Nobody {
		return found, nil
	}
	if !g.failures.may(v.from) {
		return Who{}, errTooMany
	}
	g.failures.add(v.from)
	return Who{}, errStranger
}

// Whom a trusted proxy names, and the groups that it says they are in.
const (
	userHeader   = "X-Forwarded-User"
	groupsHeader = "X-Forwarded-Groups"
)

// byProxy believes a trusted proxy. Two names are none: the proxy added its own to a forged one.
func (g *Gate) byProxy(r *http.Request, v *visit) (Who, error) {
	users := r.Header.Values(userHeader)
	if !v.trusted || len(users) != 1 || !nameable(users[0]) {
		return Who{}, errStranger
	}
	who := Who{users[0], Viewer}
	if lists := r.Header.Values(groupsHeader); len(lists) == 1 {
		for group := range strings.SplitSeq(lists[0], ",") {
			switch group = strings.TrimSpace(group); {
			case slices.Contains(g.Admins, group):
				who.Role = Admin
			case slices.Contains(g.Operators, group):
				who.Role = max(who.Role, Operator)
			}
		}
	}
	return who, nil
}
