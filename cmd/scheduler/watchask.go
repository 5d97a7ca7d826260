package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"rota/internal/status"
)

// A sighting is what the server last said of the jobs.
type sighting struct {
	status.Moment
	Jobs []status.JobJSON `json:"jobs"`

	at time.Time // when it said so; zero: it has not yet
}

// now is the database's clock, as far as that can be told: that of the snapshot where it is stale, for
// nobody knows what has moved since.
func (s sighting) now() time.Time {
	if s.Stale {
		return s.AsOf
	}
	return s.AsOf.Add(s.age())
}

// age is how old the snapshot has become.
func (s sighting) age() time.Duration {
	return time.Duration(s.AgeSeconds*float64(time.Second)) + time.Since(s.at)
}

// A finalError is an answer that asking again would not change.
type finalError struct{ error }

func (e *finalError) Unwrap() error { return e.error }

// An asker asks a server for its jobs again and again, so that an answer which would be the same costs
// neither of them anything.
type asker struct {
	client http.Client
	url    *url.URL // of the list of jobs
	header http.Header
	tag    string
	last   sighting
}

const answerPatience = 5 * time.Second

func newAsker(address, token, user string) (*asker, error) {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, errors.New("url: it must be that of the page, as in https://ops.example.com/ops/rota/") // it may hold a password
	}
	a := &asker{client: http.Client{
		Timeout:       answerPatience,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}, header: http.Header{"Accept": {"application/json"}}}
	switch password, ok := u.User.Password(); {
	case token != "" && (user != "" || ok):
		return nil, errors.New("token and user: the server has one way to find out who asks; give one of them")
	case token != "":
		a.header.Set("Authorization", "Bearer "+token)
	case user == "" && ok:
		user = u.User.Username() + ":" + password
	}
	if user != "" {
		name, password, ok := strings.Cut(user, ":")
		if !ok {
			return nil, errors.New("user: it must be name:password")
		}
		r := http.Request{Header: a.header}
		r.SetBasicAuth(name, password)
	}
	u.User, u.RawQuery, u.Fragment = nil, "", ""
	if u.Path == "" {
		u.Path = "/" // or the joined path has no slash before it, and the server no name
	}
	a.url = u.JoinPath("api", "v1", "jobs")
	return a, nil
}

// name is the server's, for people.
func (a *asker) name() string {
	return strings.TrimSuffix(a.url.Host+a.url.Path, "/api/v1/jobs")
}

// jobs asks once. An error that is a *finalError would come again.
func (a *asker) jobs(ctx context.Context) (sighting, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, a.url.String(), nil)
	if err != nil {
		return sighting{}, &finalError{err}
	}
	r.Header = a.header.Clone()
	if a.tag != "" {
		r.Header.Set("If-None-Match", a.tag)
	}
	res, err := a.client.Do(r)
	if err != nil {
		return sighting{}, a.unreached(err)
	}
	defer res.Body.Close()
	switch {
	case res.StatusCode == http.StatusNotModified:
		a.last.move(res.Header)
		return a.last, nil
	case res.StatusCode != http.StatusOK:
		return sighting{}, a.refused(res)
	}
	if kind, _, _ := mime.ParseMediaType(res.Header.Get("Content-Type")); kind != "application/json" {
		return sighting{}, a.elsewhere(fmt.Sprintf("it answers with %q", plain(kind, 40)))
	}
	var s sighting
	if err := json.NewDecoder(res.Body).Decode(&s); err != nil {
		return sighting{}, fmt.Errorf("%s: its answer broke off or is no list of jobs: %w", a.name(), err)
	}
	s.at = time.Now()
	a.last, a.tag = s, res.Header.Get("ETag")
	return s, nil
}

// move makes the sighting one of the moment that the headers of an answer without a body tell.
func (s *sighting) move(h http.Header) {
	s.at = time.Now()
	if asOf, err := time.Parse(time.RFC3339Nano, h.Get("Rota-As-Of")); err == nil {
		s.AsOf = asOf
	}
	if age, err := strconv.ParseFloat(h.Get("Rota-Age"), 64); err == nil {
		s.AgeSeconds = age
	}
}

// unreached is final where the server has never been reached: then the address is more likely wrong
// than the server away.
func (a *asker) unreached(err error) error {
	var told *url.Error
	if errors.As(err, &told) {
		err = told.Err // without the address, which may be long
	}
	if a.last.at.IsZero() {
		return &finalError{fmt.Errorf("ask %s: %w; --url names another server, and --listen another replica on this host", a.name(), err)}
	}
	return fmt.Errorf("%w", err)
}

// elsewhere is for an answer that is none of Rota's. What stands in front of a server may give such a
// one while that restarts.
func (a *asker) elsewhere(what string) error {
	err := fmt.Errorf("%s has no API of Rota: %s; --url must have the path that a proxy has the page under, as in https://ops.example.com/ops/rota/", a.name(), what)
	if a.last.at.IsZero() {
		return &finalError{err}
	}
	return err
}

// refused is what an answer other than the list says.
func (a *asker) refused(res *http.Response) error {
	var problem struct {
		Detail string `json:"detail"`
	}
	body, _ := io.ReadAll(io.LimitReader(res.Body, 64<<10)) // what is cut off says nothing
	_ = json.Unmarshal(body, &problem)
	detail := plain(problem.Detail, 300)
	switch code := res.StatusCode; {
	case code == http.StatusUnauthorized:
		return &finalError{fmt.Errorf("%s: 401: %s --token (ROTA_TOKEN) or --user (ROTA_USER) says who you are", a.name(), orElse(detail, "it does not know who you are."))}
	case code == http.StatusForbidden, code == http.StatusMisdirectedRequest:
		return &finalError{fmt.Errorf("%s: %d: %s", a.name(), code, orElse(detail, http.StatusText(code)))}
	case code == http.StatusTooManyRequests, code >= 500:
		return fmt.Errorf("%d: %s", code, orElse(detail, http.StatusText(code)))
	case code >= 300 && code < 400:
		return a.elsewhere(fmt.Sprintf("it sends to %q instead", plain(res.Header.Get("Location"), 200)))
	}
	return a.elsewhere(res.Status)
}

func orElse(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}
