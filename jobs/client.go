package jobs

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"
)

// client is how jobs talk HTTP. How long a call may take is its context's business; the
// transport only bounds what a context does not tell apart.
//
// It makes a connection per request: a ping must show that a new one can be made, and the
// others are too seldom to keep one open.
var client = &http.Client{Transport: &http.Transport{
	Proxy:                  http.ProxyFromEnvironment,
	DialContext:            (&net.Dialer{Timeout: 5 * time.Second}).DialContext,
	TLSHandshakeTimeout:    5 * time.Second,
	MaxResponseHeaderBytes: 64 << 10,
	DisableKeepAlives:      true,
}}

// newGet returns a GET of url that says who asks.
func newGet(ctx context.Context, url string) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("User-Agent", "rota-scheduler")
	return req, nil
}

// limited is r cut off at max bytes: reading on is an error, for the beginning of a list must
// not pass for the list.
func limited(r io.ReadCloser, max int64) io.ReadCloser { return http.MaxBytesReader(nil, r, max) }

// unexpected is the error for an answer that is not the one hoped for.
func unexpected(res *http.Response) error {
	return fmt.Errorf("answered %d %s", res.StatusCode, http.StatusText(res.StatusCode))
}
