// Package lease decides who leads each lease, and keeps it so.
package lease
