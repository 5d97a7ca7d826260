package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

func healthCommand() *cobra.Command {
	cfg := Defaults()
	cmd := &cobra.Command{
		Use: "health [livez|readyz]", Short: "Ask a replica on this host how it is, for a container's health check",
		Example: `  scheduler health           is its lease loop turning?
  scheduler health readyz    can it do its part?`,
		Args:      cobra.MatchAll(cobra.MaximumNArgs(1), cobra.OnlyValidArgs),
		ValidArgs: []string{"livez", "readyz"},
		RunE: func(cmd *cobra.Command, args []string) error {
			probe := "livez"
			if len(args) == 1 {
				probe = args[0]
			}
			return health(cmd.Context(), cmd.OutOrStdout(), cfg.Listen, probe)
		},
	}
	listenFlag(cmd.Flags(), &cfg)
	return cmd
}

func health(ctx context.Context, stdout io.Writer, listen, probe string) error {
	address, err := addressHere(listen)
	if err != nil {
		return coded(exitUsage, err)
	}
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address+probe, nil)
	if err != nil {
		return fmt.Errorf("ask %s: %w", listen, err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return fmt.Errorf("ask %s: %w", listen, err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(io.LimitReader(res.Body, 1000))
	if err != nil {
		return fmt.Errorf("ask %s: %w", listen, err)
	}
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", probe, strings.TrimSpace(string(body)))
	}
	_, err = stdout.Write(body)
	return err
}

// addressHere is the URL under which a replica on this host answers that listens there.
func addressHere(listen string) (string, error) {
	host, port, err := net.SplitHostPort(listen)
	if err != nil {
		return "", fmt.Errorf("listen %q: it must be host:port, as in 127.0.0.1:8080", listen)
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "localhost"
	}
	return "http://" + net.JoinHostPort(host, port) + "/", nil
}
