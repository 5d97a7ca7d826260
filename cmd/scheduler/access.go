package main

import (
	"fmt"
	"net"
	"strconv"

	"github.com/spf13/pflag"

	"rota/internal/web"
)

// accessFlags say who may use the page and the API, and how they are reached.
func accessFlags(flags *pflag.FlagSet, cfg *Config) {
	flags.StringVar(&cfg.Auth, "auth", cfg.Auth, "how those who use the page and the API say who they are: none, basic, token or proxy")
	flags.StringVar(&cfg.AuthFile, "auth-file", cfg.AuthFile, "`file` of lines name:hash:role, with basic (bcrypt; viewer, operator, admin) or token (SHA-256; read, operate, admin)")
	listFlag(flags, &cfg.TrustedProxies, "trusted-proxies", "`addresses` or ranges of the proxies whose X-Forwarded headers are believed, as in 10.0.0.5,10.1.0.0/16")
	listFlag(flags, &cfg.AllowedHosts, "allowed-hosts", "`names` that the page is reached under, besides addresses, localhost and that of --external-url")
	flags.StringVar(&cfg.ExternalURL, "external-url", cfg.ExternalURL, "`URL` under which browsers reach the page through a proxy, which may keep its path or strip it")
	listFlag(flags, &cfg.OperatorGroups, "operator-groups", "`groups` of X-Forwarded-Groups that make an operator, with --auth proxy")
	listFlag(flags, &cfg.AdminGroups, "admin-groups", "`groups` that make an admin")
	flags.StringVar(&cfg.MetricsAccess, "metrics-access", cfg.MetricsAccess, "/metrics is open to all, or for each viewer: open or viewer")
}

// gate is what these settings make of who may do what. It reads the file.
func (c Config) gate() (*web.Gate, error) {
	return web.NewGate(web.Access{
		Listen: c.Listen, Auth: c.Auth, File: c.AuthFile, Proxies: c.TrustedProxies, Hosts: c.AllowedHosts, External: c.ExternalURL,
		Operators: c.OperatorGroups, Admins: c.AdminGroups, Metrics: c.MetricsAccess,
	})
}

// validateListen refuses what cannot be listened on on any machine.
func validateListen(address string) error {
	_, port, err := net.SplitHostPort(address)
	if err == nil {
		_, err = net.LookupPort("tcp", port)
	}
	if n, numErr := strconv.Atoi(port); err != nil || numErr == nil && (n < 0 || n > 65535) {
		return fmt.Errorf("listen %q: it must be host:port, with a port from 0 to 65535, as in 127.0.0.1:8080", address)
	}
	return nil
}
