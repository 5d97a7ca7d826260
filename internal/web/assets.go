package web

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"mime"
	"net/http"
	"path"
	"strings"
	"time"

	"github.com/go-chi/chi/v5"
)

//go:embed static
var staticFS embed.FS

// An asset is a file whose address names its content, so that it may be kept for ever.
type asset struct {
	address, kind string
	body          []byte
}

// assets are the files of static, by name; byAddress by what their address ends with.
var assets, byAddress = load()

func load() (byName, byAddress map[string]asset) {
	byName, byAddress = map[string]asset{}, map[string]asset{}
	entries, err := staticFS.ReadDir("static")
	if err != nil {
		panic(err) // embedded: cannot be missing
	}
	for _, e := range entries {
		body, err := staticFS.ReadFile(path.Join("static", e.Name()))
		if err != nil {
			panic(err)
		}
		sum := sha256.Sum256(body)
		ext := path.Ext(e.Name())
		address := strings.TrimSuffix(e.Name(), ext) + "." + hex.EncodeToString(sum[:6]) + ext
		a := asset{address, mime.TypeByExtension(ext), body}
		byName[e.Name()], byAddress[address] = a, a
	}
	return byName, byAddress
}

func static(w http.ResponseWriter, r *http.Request) error {
	a, ok := byAddress[chi.URLParam(r, "file")]
	if !ok {
		return notFound(w, r)
	}
	w.Header().Set("Cache-Control", "public, max-age=31536000, immutable")
	w.Header().Set("Content-Type", a.kind)
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(a.body))
	return nil
}
