// Package migrations holds the tables of the jobs compiled into this binary, as goose SQL.
//
// They have a version table of their own, so that a team may add a migration here
// without counting around those of Rota itself. They run after Rota's.
package migrations

import "embed"

// FS has every migration at its top level, in the form that goose reads.
//
//go:embed *.sql
var FS embed.FS

// VersionTable is where goose notes which of them a database has.
const VersionTable = "rota_jobs_schema"
