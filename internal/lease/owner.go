package lease

import (
	"strings"

	"github.com/google/uuid"
)

// NewOwner names this process start: the pod's or host's name, a slash, and a fresh UUID.
//
// The UUID is what tells one start from the next. A host name alone is stable in a StatefulSet, and
// a process restarted under it would inherit the epoch of the one that died.
func NewOwner(host string) string {
	return host + "/" + uuid.NewString()
}

// AppName is the application_name that every connection of the owner should carry: "rota " and the
// owner's UUID alone, since PostgreSQL cuts the name off after 63 bytes and a host's name may be
// longer than that. A successor ends the connections of a former owner by it.
func AppName(owner string) string {
	return "rota " + owner[strings.LastIndexByte(owner, '/')+1:]
}
