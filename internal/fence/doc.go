// Package fence refuses writes from a term of leadership that has passed.
package fence
