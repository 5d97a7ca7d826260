package web

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
)

// A Role is what somebody may do; each may do all that those before it may.
type Role int

// The roles.
const (
	Nobody   Role = iota // not known: sees what is open to all
	Viewer               // sees everything, and changes nothing
	Operator             // gives orders about one job, run, lease or replica
	Admin                // gives those too that have to be typed: about all jobs, and the end of a term under its leader
)

var roleNames = []string{"nobody", "viewer", "operator", "admin"}

func (r Role) String() string { return roleNames[r] }

// A Who is somebody who asks.
type Who struct {
	Name string // as the audit has it
	Role Role
}

// Who acts where nobody is asked for a name, and who does where no name could be found out.
const (
	anonymous = "anonymous"
	unknown   = "unauthenticated"
)

// The ways of finding out who asks.
const (
	AuthNone  = "none"  // nobody is asked; who may act depends on where the page can be reached from
	AuthBasic = "basic" // names and passwords, of a file with bcrypt hashes
	AuthToken = "token" // bearer tokens, of a file with their SHA-256 hashes
	AuthProxy = "proxy" // a trusted proxy says who it is
)

// Access is who may ask for what, from where, and under which names of this server.
type Access struct {
	Listen    string   // the address that is listened on, as host:port
	Auth      string   // one of the ways above; empty: AuthNone
	File      string   // of AuthBasic and AuthToken
	Proxies   []string // addresses or ranges whose X-Forwarded headers are believed
	Hosts     []string // names that the server is reached under, besides its addresses and localhost
	External  string   // the URL under which browsers reach the page; empty: the one that is listened on
	Operators []string // groups that make an operator, with AuthProxy
	Admins    []string // groups that make an admin
	Metrics   string   // open: to all; viewer: to viewers
}

// A Gate is an Access that was found to be in order.
type Gate struct {
	Access
	// ReadOnly says why nobody may act; empty: those with the role may.
	ReadOnly string

	accounts accounts
	checks   *checks
	proxies  []netip.Prefix
	hosts    map[string]bool
	external *url.URL // nil: none
	prefix   string   // of external, without a slash at its end; empty: none
	anyHost  bool     // it goes by every name
	local    bool     // only this machine can reach it
	origins  *http.CrossOriginProtection
	failures *failures
}

// NewGate reads the file that Access names, and says at once all that is wrong.
func NewGate(a Access) (*Gate, error) {
	if a.Auth == "" {
		a.Auth = AuthNone
	}
	if a.Metrics == "" {
		a.Metrics = metricsOpen
	}
	g := &Gate{Access: a, checks: newChecks(), origins: http.NewCrossOriginProtection(), failures: newFailures()}
	var external, proxies, hosts error
	g.external, g.prefix, external = parseExternal(a.External)
	g.proxies, proxies = parseProxies(a.Proxies)
	g.hosts, hosts = parseHosts(a.Hosts)
	err := errors.Join(a.wrong(), external, proxies, hosts)
	if (a.Auth == AuthBasic || a.Auth == AuthToken) && a.File != "" {
		var wrong error
		g.accounts, wrong = readAccounts(a.File, a.Auth)
		err = errors.Join(err, wrong)
	}
	if err != nil {
		return nil, err
	}
	g.local = isLocal(a.Listen) && len(g.proxies) == 0
	if g.external != nil {
		g.hosts[strings.ToLower(g.external.Hostname())] = true
		g.local = g.local && isLocal(g.external.Host)
		if err := g.origins.AddTrustedOrigin(g.external.Scheme + "://" + g.external.Host); err != nil {
			return nil, fmt.Errorf("external-url: %w", err)
		}
	}
	if host, _, err := net.SplitHostPort(a.Listen); err == nil && host != "" {
		g.hosts[strings.ToLower(host)] = true
	}
	if a.Auth == AuthNone && !g.local {
		g.ReadOnly = "it can be reached from other machines and asks nobody who they are: --auth basic, token or proxy lets those act who may"
	}
	return g, nil
}

// closedGate lets everybody read, under any name, and nobody do more.
func closedGate() *Gate {
	return &Gate{
		Access: Access{Auth: AuthNone, Metrics: metricsOpen}, ReadOnly: "nothing says who may act", anyHost: true,
		hosts: map[string]bool{}, origins: http.NewCrossOriginProtection(), checks: newChecks(), failures: newFailures(),
	}
}

const (
	metricsOpen   = "open"
	metricsViewer = "viewer"
)

// wrong is what does not go together.
func (a Access) wrong() error {
	var errs []error
	refuse := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	switch {
	case !slices.Contains([]string{AuthNone, AuthBasic, AuthToken, AuthProxy}, a.Auth):
		refuse("auth %q: it must be none, basic, token or proxy", a.Auth)
	case (a.Auth == AuthBasic || a.Auth == AuthToken) && a.File == "":
		refuse("auth %s: auth-file must name the file of those who may enter", a.Auth)
	case (a.Auth == AuthNone || a.Auth == AuthProxy) && a.File != "":
		refuse("auth-file %q: auth %s reads no file; give --auth basic or token", a.File, a.Auth)
	case a.Auth == AuthProxy && len(a.Proxies) == 0:
		refuse("auth proxy: trusted-proxies must say which proxies may tell who asks, as in 10.0.0.5,10.1.0.0/16")
	}
	if a.Metrics != metricsOpen && a.Metrics != metricsViewer {
		refuse("metrics-access %q: it must be open or viewer", a.Metrics)
	}
	return errors.Join(errs...)
}

// isLocal says of host:port, or a host alone, that no other machine can reach it.
func isLocal(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		host = strings.Trim(address, "[]")
	}
	if ip, err := netip.ParseAddr(host); err == nil {
		return ip.Unmap().IsLoopback()
	}
	return strings.EqualFold(host, "localhost")
}

var (
	errStranger = errors.New("not known")
	errTooMany  = errors.New("too many failures")
)

// who finds out who asks. The error is errStranger, errTooMany, or that of a ctx that ended first.
func (g *Gate) who(r *http.Request, v *visit) (Who, error) {
	switch g.Auth {
	case AuthBasic:
		return g.byPassword(r, v)
	case AuthToken:
		return g.byToken(r, v)
	case AuthProxy:
		return g.byProxy(r, v)
	}
	// A proxy on this machine that nobody told us of would make the whole network local.
	if g.ReadOnly != "" || v.forwarded || !v.from.IsLoopback() {
		return Who{anonymous, Viewer}, nil
	}
	return Who{anonymous, Admin}, nil
}

// A visit is what is known of a request besides what it says itself.
type visit struct {
	who       Who
	from      netip.Addr // the client, behind the proxies that are trusted
	trusted   bool       // a trusted proxy handed it on
	forwarded bool       // some proxy did, trusted or not
	notice    string     // what became of the order before
}

type visitKey struct{}

func withVisit(r *http.Request, v *visit) *http.Request {
	return r.WithContext(context.WithValue(r.Context(), visitKey{}, v))
}

// visitOf is never nil.
func visitOf(r *http.Request) *visit {
	if v, ok := r.Context().Value(visitKey{}).(*visit); ok {
		return v
	}
	return &visit{who: Who{Role: Nobody}}
}
