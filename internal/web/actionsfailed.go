package web

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"rota/internal/control"
)

// orderPatience bounds an order from the page as a whole; each of its transactions has a bound of its own.
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
	code, reason, next := http.StatusServiceUnavailable, sentence(err.Error()), ""
	switch {
	case errors.Is(err, control.ErrInvalid):
		return refusal{http.StatusBadRequest, reason, "Nothing was done."}
	case errors.Is(err, control.ErrNotFound):
		return refusal{http.StatusNotFound, reason, "Nothing was done."}
	case errors.Is(err, control.ErrRefused):
		return refusal{http.StatusConflict, reason, "Nothing was done."}
	case errors.Is(err, control.ErrBusy), errors.Is(err, control.ErrSilent):
	case errors.Is(err, control.ErrUnknown):
		next = unknownNext[a.name]
	case a.name == "revoke":
		reason = "The database did not carry this out."
		next = "The term may be over without its epoch having been raised: look at the lease, and revoke it again. This replica's log says what the database said."
	default:
		reason = "The database did not carry this out."
		next = "Nothing was done: try again once it answers. This replica's log says what it said."
	}
	return &failedOrder{refusal{code, reason, next}, err}
}

// unknownNext is where to look where it is not known what became of an order.
var unknownNext = map[string]string{
	"run":       "The job's page shows the request if there is one. This form sent again, or the same key, asks for the same run.",
	"cancel":    "The run's page shows whether it ends; asked again, it is the same request.",
	"pause":     "The job's page shows whether it is paused.",
	"resume":    "The job's page shows whether it is paused.",
	"step_down": "The job's page shows the request if there is one; asked again, it is the same request.",
	"drain":     "The page of replicas shows whether it drains; asked again, it is the same request.",
	"withdraw":  "The job's page shows whether the request waits yet.",
	"revoke":    "The job's page shows the lease's epoch: revoke it again if it is the one that was to end.",
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
