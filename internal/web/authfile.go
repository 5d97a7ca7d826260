package web

import (
	"bufio"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/crypto/bcrypt"
)

// An account is a line of the file of those who may enter: name, hash and role, with colons between
// them. The hash is bcrypt's of the password, as htpasswd -B makes it, or the SHA-256 of the token.
type account struct {
	who  Who
	hash []byte
}

type accounts []account

// scopes are the roles as the file of tokens calls them; that of passwords has the roles' names.
var scopes = map[string]map[string]Role{
	AuthBasic: {"": Viewer, "viewer": Viewer, "operator": Operator, "admin": Admin},
	AuthToken: {"": Viewer, "read": Viewer, "operate": Operator, "admin": Admin},
}

// longestFile bounds the file, which is read as a whole.
const longestFile = 1 << 20

// readAccounts says all that is wrong with the file, each with its line, and never quotes a hash.
func readAccounts(file, auth string) (accounts, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, fmt.Errorf("auth-file: %w", err)
	}
	defer func() { _ = f.Close() }() // it was only read
	var all accounts
	var errs []error
	named := map[string]bool{}
	lines := bufio.NewScanner(io.LimitReader(f, longestFile))
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		a, err := parseAccount(line, auth)
		if err == nil && named[a.who.Name] {
			err = fmt.Errorf("the name %q is there twice", a.who.Name)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("auth-file %s, line %d: %w", file, n, err))
			continue
		}
		named[a.who.Name] = true
		all = append(all, a)
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("auth-file %s: %w", file, err)
	}
	if len(all) == 0 && len(errs) == 0 {
		errs = append(errs, fmt.Errorf("auth-file %s: nobody is in it", file))
	}
	return all, errors.Join(errs...)
}

func parseAccount(line, auth string) (a account, err error) {
	parts := strings.Split(line, ":")
	if len(parts) < 2 || len(parts) > 3 {
		return a, fmt.Errorf("it must be name:hash:%s", oneOf(auth))
	}
	a.who.Name = parts[0]
	role := ""
	if len(parts) == 3 {
		role = parts[2]
	}
	var known bool
	if a.who.Role, known = scopes[auth][role]; !known {
		return a, fmt.Errorf("%.40q must be one of %s", role, oneOf(auth))
	}
	if !nameable(a.who.Name) {
		return a, fmt.Errorf("the name %.40q: it must be printable, of at most %d bytes, and neither %s nor %s", a.who.Name, longestName, anonymous, unknown)
	}
	a.hash, err = parseHash(parts[1], auth)
	return a, err
}

func oneOf(auth string) string {
	if auth == AuthToken {
		return "read, operate or admin"
	}
	return "viewer, operator or admin"
}

// longestName is in bytes; the audit takes no longer one.
const longestName = 100

func nameable(name string) bool {
	return name != "" && len(name) <= longestName && utf8.ValidString(name) && name != anonymous && name != unknown &&
		!strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) })
}

// dearest is the cost beyond which a single entry would keep a core busy for seconds.
const dearest = 14

func parseHash(text, auth string) ([]byte, error) {
	if auth == AuthToken {
		hash, err := hex.DecodeString(text)
		if err != nil || len(hash) != 32 {
			return nil, errors.New("the hash must be the SHA-256 of the token, in 64 hexadecimal digits: printf %s TOKEN | sha256sum")
		}
		return hash, nil
	}
	cost, err := bcrypt.Cost([]byte(text))
	if err != nil {
		return nil, errors.New("the hash must be bcrypt's, as htpasswd -B makes it")
	}
	if cost < bcrypt.DefaultCost || cost > dearest {
		return nil, fmt.Errorf("bcrypt's cost is %d: it must be %d to %d (htpasswd -B -C %d)", cost, bcrypt.DefaultCost, dearest, bcrypt.DefaultCost)
	}
	return []byte(text), nil
}
