// Package migrations holds Rota's own schema as goose SQL.
package migrations

import "embed"

// FS has every migration at its top level, in the form that goose reads.
//
//go:embed *.sql
var FS embed.FS

// VersionTable is where goose notes which of them a database has.
const VersionTable = "rota_schema"
