package fence

import "errors"

// ErrFenced says that the term is over: nothing was written, and nothing will be.
// A job returns it; trying again cannot help.
var ErrFenced = errors.New("fenced: this term of leadership is over")

// Refusal is the SQLSTATE with which the database refuses a write of a term that has passed.
const Refusal = "RF001"

// A Token is the fencing token: it names one term of one lease.
type Token struct {
	Lease string // leadership.job_name
	Owner string // the process start that holds the lease
	Epoch int64  // greater than that of every earlier term of the lease
}

// A Table is a protected table: one with an epoch column, which a job writes through the fence.
// One value serves both registry.Job.Protects and Writer.Upsert.
type Table struct {
	Name  string   // may be qualified by a schema
	Key   []string // the columns of the unique key that an upsert meets
	Stamp string   // optional: a column that every write sets to clock_timestamp()
}
