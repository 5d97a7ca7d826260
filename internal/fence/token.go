package fence

import (
	"errors"
	"strconv"
)

// ErrFenced says that the term is over: nothing was written, and nothing will be.
// A job returns it; trying again cannot help.
//
// An error that is ErrUnknown as well is the one exception: the term ended while the write was
// under way, so that it may have taken effect, before the takeover.
var ErrFenced = errors.New("fenced: this term of leadership is over")

// ErrUnknown says that the answer was lost: the write took effect as a whole, or not at all.
// An upsert may simply be made again.
var ErrUnknown = errors.New("the answer was lost, so that it is unknown whether the write took effect")

// Refusal is the SQLSTATE with which the database refuses a write of a term that has passed.
const Refusal = "RF001"

// A Token is the fencing token: it names one term of one lease.
type Token struct {
	Lease string // leadership.job_name
	Owner string // the process start that holds the lease
	Epoch int64  // greater than that of every earlier term of the lease
}

// params are the token's values as a statement's first three parameters in text form.
func (t Token) params() [][]byte {
	return [][]byte{[]byte(t.Lease), []byte(t.Owner), strconv.AppendInt(nil, t.Epoch, 10)}
}
