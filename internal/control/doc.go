// Package control is what operators ask of the jobs and their leases, and the record of it.
//
// It has two sides. A [Desk] is the operator's: each of its methods commits a request or an effect
// together with a line of the audit. A [Watch] is the replica's: it reads what is asked, hands it to
// whoever carries it out, and writes down what became of it.
package control
