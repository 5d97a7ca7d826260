// Package scheduler decides when led work runs, and keeps its record.
package scheduler
