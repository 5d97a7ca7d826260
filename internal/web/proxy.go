package web

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"path"
	"slices"
	"strings"
)

// parseExternal returns the URL, and its path without a slash at the end.
func parseExternal(text string) (*url.URL, string, error) {
	if text == "" {
		return nil, "", nil
	}
	wrong := func(what string) (*url.URL, string, error) {
		return nil, "", fmt.Errorf("external-url: %s; it must be the address that browsers use, as in https://ops.example.com/rota/", what)
	}
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return wrong("it cannot be read") // it is not quoted: it may hold a password
	case u.User != nil:
		return wrong("it holds a user")
	case u.Scheme != "http" && u.Scheme != "https", u.Hostname() == "":
		return wrong(fmt.Sprintf("%.200q is no http or https address", text))
	case u.RawQuery != "" || u.Fragment != "" || u.RawPath != "":
		return wrong(fmt.Sprintf("%.200q has a query, a fragment or an escaped path", text))
	}
	prefix := strings.TrimRight(u.Path, "/")
	if prefix != "" && path.Clean(prefix) != prefix {
		return wrong(fmt.Sprintf("the path of %.200q is not a plain one", text))
	}
	if first, _, _ := strings.Cut(strings.TrimPrefix(prefix, "/"), "/"); slices.Contains(ownPaths, first) {
		return wrong(fmt.Sprintf("its path begins with /%s, as one of the pages does", first))
	}
	return u, prefix, nil
}

// ownPaths begin the paths of our own, so that no prefix may: it could not be told whether a proxy
// has stripped it.
var ownPaths = []string{
	"about", "api", "audit", "events", "jobs", "leases", "livez", "metrics", "pause", "readyz", "replicas", "requests", "resume", "runs", "static",
}

func parseProxies(ranges []string) ([]netip.Prefix, error) {
	var all []netip.Prefix
	var errs []error
	for _, text := range ranges {
		p, err := netip.ParsePrefix(text)
		if ip, ipErr := netip.ParseAddr(text); ipErr == nil {
			p, err = netip.PrefixFrom(ip, ip.BitLen()), nil
		}
		switch {
		case err != nil:
			errs = append(errs, fmt.Errorf("trusted-proxies %.60q: it must be an address or a range, as in 10.0.0.5 or 10.1.0.0/16", text))
		case p.Bits() == 0:
			errs = append(errs, fmt.Errorf("trusted-proxies %s: it would trust everybody; name the proxies alone", text))
		default:
			all = append(all, p.Masked())
		}
	}
	return all, errors.Join(errs...)
}

func parseHosts(names []string) (map[string]bool, error) {
	hosts := map[string]bool{}
	var errs []error
	for _, name := range names {
		if name == "" || strings.ContainsAny(name, "/:*@ \t") {
			errs = append(errs, fmt.Errorf("allowed-hosts %.100q: it must be a name without scheme, port and path, as in rota.example.com", name))
			continue
		}
		hosts[strings.TrimSuffix(strings.ToLower(name), ".")] = true
	}
	return hosts, errors.Join(errs...)
}

// servedAs reports whether the Host of a request is one that this server goes by. A page elsewhere
// whose name was made to lead here has another. An address is no name that could be made to.
func (g *Gate) servedAs(host string) bool {
	name := host
	if h, _, err := net.SplitHostPort(host); err == nil {
		name = h
	}
	name = strings.TrimSuffix(strings.ToLower(strings.Trim(name, "[]")), ".")
	if _, err := netip.ParseAddr(name); err == nil {
		return true
	}
	return g.anyHost || name == "localhost" || strings.HasSuffix(name, ".localhost") || g.hosts[name]
}

// forwarding are the headers by which proxies tell of a request what it does not say itself.
var forwarding = []string{
	"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Forwarded-Port", "X-Forwarded-Prefix",
	"X-Forwarded-Server", "X-Real-Ip", "Via", userHeader, groupsHeader, "X-Forwarded-Email", "X-Forwarded-Preferred-Username",
}

// arrive makes out who is at the other end. From a trusted proxy it takes what that says; of anybody
// else it keeps nothing of the kind. Then it takes the prefix off the path, where the proxy left it.
func (g *Gate) arrive(r *http.Request) *visit {
	v := &visit{who: Who{Name: unknown}, from: remote(r)}
	v.trusted = g.trusts(v.from)
	prefix := ""
	for _, name := range forwarding {
		v.forwarded = v.forwarded || len(r.Header.Values(name)) > 0
		if !v.trusted {
			r.Header.Del(name)
		}
	}
	if v.trusted {
		v.from = g.client(r, v.from)
		if host := lastOf(r.Header.Values("X-Forwarded-Host")); host != "" {
			r.Host = host
		}
		prefix = strings.TrimRight(lastOf(r.Header.Values("X-Forwarded-Prefix")), "/")
	}
	if !strip(r.URL, g.prefix) {
		strip(r.URL, prefix)
	}
	return v
}

func remote(r *http.Request) netip.Addr {
	at, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return netip.Addr{}
	}
	return at.Addr().Unmap().WithZone("")
}

func (g *Gate) trusts(ip netip.Addr) bool {
	return slices.ContainsFunc(g.proxies, func(p netip.Prefix) bool { return p.Contains(ip) })
}

// client is the last address of the list that no trusted proxy has: what stands before it, anybody
// may have written.
func (g *Gate) client(r *http.Request, from netip.Addr) netip.Addr {
	hops := strings.Split(strings.Join(r.Header.Values("X-Forwarded-For"), ","), ",")
	for _, hop := range slices.Backward(hops) {
		ip, err := netip.ParseAddr(strings.TrimSpace(hop))
		if err != nil {
			break
		}
		from = ip.Unmap().WithZone("")
		if !g.trusts(from) {
			break
		}
	}
	return from
}

// lastOf is the last of several values, which our proxy added.
func lastOf(values []string) string {
	if len(values) == 0 {
		return ""
	}
	list := strings.Split(values[len(values)-1], ",")
	return strings.TrimSpace(list[len(list)-1])
}

// strip takes a prefix off a path that has it.
func strip(u *url.URL, prefix string) bool {
	rest, found := strings.CutPrefix(u.Path, prefix)
	if prefix == "" || !found || rest != "" && rest[0] != '/' {
		return false
	}
	raw, plain := strings.CutPrefix(u.RawPath, prefix)
	if u.RawPath != "" && !plain {
		return false
	}
	u.Path, u.RawPath = rest, raw
	return true
}
