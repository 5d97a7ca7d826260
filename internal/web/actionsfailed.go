package web

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"rota/internal/control"
)

// orderPatience bounds an order from the page, which has somebody waiting before it.
const orderPatience = 10 * time.Second

func detached(r *http.Request) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(r.Context()), orderPatience)
}

// orderFailed says why an order came to nothing. What the database itself said is for the log.
func orderFailed(a action, err error) error {
	var told refusal
	if errors.As(err, &told) {
		return err
	}
	code := 0
	switch {
	case errors.Is(err, control.ErrInvalid):
		code = http.StatusBadRequest
	case errors.Is(err, control.ErrNotFound):
		code = http.StatusNotFound
	case errors.Is(err, control.ErrRefused):
		code = http.StatusConflict
	case errors.Is(err, control.ErrBusy), errors.Is(err, control.ErrUnknown):
		code = http.StatusServiceUnavailable
	}
	if code != 0 {
		return refusal{code, sentence(err.Error()), ""}
	}
	next := "Nothing was done: try again once it answers. This replica's log says what it said."
	if a.name == "revoke" {
		next = "The term may be over without its epoch having been raised: look at the lease, and revoke it again. This replica's log says what the database said."
	}
	return &failedOrder{refusal{http.StatusServiceUnavailable, "The database did not carry this out.", next}, err}
}

// A failedOrder is one that the database did not take, with what it said.
type failedOrder struct {
	refusal
	cause error
}

func (e *failedOrder) Unwrap() []error { return []error{e.refusal, e.cause} }

// sentence makes an error one.
func sentence(text string) string {
	if text == "" {
		return text
	}
	return strings.ToUpper(text[:1]) + text[1:] + "."
}
