package web

import (
	"bytes"
	_ "embed"
	"fmt"
	"hash/fnv"
	"net/http"
	"time"
)

// openAPIDocument describes the API; a test holds the two together.
//
//go:embed openapi.json
var openAPIDocument []byte

func openAPI(w http.ResponseWriter, r *http.Request) error {
	f := fnv.New128a()
	f.Write(openAPIDocument)
	w.Header().Set("Content-Type", kindJSON)
	w.Header().Set("ETag", fmt.Sprintf(`"%x"`, f.Sum(nil)))
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(openAPIDocument))
	return nil
}
