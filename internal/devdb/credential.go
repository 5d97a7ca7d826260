package devdb

import (
	"fmt"
	"os"
	"os/user"
	"strconv"
	"syscall"
)

// credential is the user that Postgres runs as: nil for our own. Postgres
// refuses to run as root, so root's clusters run as somebody else.
type credential struct{ *syscall.Credential }

func serverCredential() (credential, error) {
	if os.Geteuid() != 0 {
		return credential{}, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		account, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err := strconv.ParseUint(account.Uid, 10, 32)
		if err != nil {
			return credential{}, fmt.Errorf("read the uid of %s: %w", name, err)
		}
		gid, err := strconv.ParseUint(account.Gid, 10, 32)
		if err != nil {
			return credential{}, fmt.Errorf("read the gid of %s: %w", name, err)
		}
		return credential{&syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}, nil
	}
	return credential{}, fmt.Errorf("postgres does not run as root, and there is neither a user postgres nor a user nobody")
}

// give hands a directory to the server's user. It stays closed to all others.
func (c credential) give(dir string) error {
	if c.Credential == nil {
		return nil
	}
	if err := os.Chown(dir, int(c.Uid), int(c.Gid)); err != nil {
		return fmt.Errorf("give %s to the user of postgres: %w", dir, err)
	}
	return nil
}
