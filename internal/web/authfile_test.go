package web

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
)

func newRecorder() *httptest.ResponseRecorder { return httptest.NewRecorder() }

func formRequest(name, value string) *http.Request {
	r := httptest.NewRequest(http.MethodPost, "/jobs/a/run", nil)
	r.URL.Path = "/jobs/a"
	r.PostForm = url.Values{name: {value}}
	return r
}

func TestTheFileOfThoseWhoMayEnterIsCheckedLineByLine(t *testing.T) {
	t.Parallel()
	hash, token := string(hashes()[viewersWord]), strings.Repeat("ab", 32)
	for _, tt := range []struct{ auth, text, says string }{
		{AuthBasic, "# people\n\nana:" + hash + ":admin\nbo:" + hash + "\n", ""},
		{AuthToken, "ci:" + token + ":operate\n", ""},
		{AuthBasic, "\n", "nobody is in it"},
		{AuthBasic, "ana\n", "line 1: it must be name:hash:viewer"},
		{AuthBasic, "\nana:secret:admin\n", "line 2: the hash must be bcrypt's"},
		{AuthBasic, "ana:{SHA}" + token + "\n", "bcrypt's"},
		{AuthBasic, "ana:" + strings.Replace(hash, "$10$", "$04$", 1) + "\n", "cost is 4"},
		{AuthBasic, "ana:" + strings.Replace(hash, "$10$", "$20$", 1) + "\n", "cost is 20"},
		{AuthBasic, "ana:" + hash + ":root\n", `"root" must be one of viewer, operator or admin`},
		{AuthBasic, "ana:" + hash + "\nana:" + hash + "\n", `line 2: the name "ana" is there twice`},
		{AuthBasic, unknown + ":" + hash + "\n", "the name"},
		{AuthBasic, "\x1b[2J:" + hash + "\n", "the name"},
		{AuthToken, "ci:" + token + ":admins\n", "read, operate or admin"},
		{AuthToken, "ci:abc:admin\n", "SHA-256"},
	} {
		_, err := readAccounts(written(t, tt.text), tt.auth)
		switch {
		case tt.says == "" && err != nil:
			t.Errorf("%q: %v", tt.text, err)
		case tt.says != "" && (err == nil || !strings.Contains(err.Error(), tt.says)):
			t.Errorf("%q: %v, want %q", tt.text, err, tt.says)
		case err != nil && (strings.Contains(err.Error(), hash) || strings.Contains(err.Error(), token) || strings.Contains(err.Error(), "secret")):
			t.Errorf("it tells a hash: %v", err)
		}
	}
}

// Where a form's answer leads is a path of ours, whatever the form says.
func TestAFormLeadsBackToAPathOfOursAlone(t *testing.T) {
	t.Parallel()
	for to, want := range map[string]string{
		"/jobs/a?page=2#x": "../jobs/a?page=2#x", "/": "../", "": "../",
		"https://evil.example/": "../", "//evil.example/": "../", "/\\evil.example": "../", "/%2e%2e/..": "../", "javascript:alert(1)": "../",
		"/jobs\r\nSet-Cookie: a=b": "../", "/\t/evil.example": "../", "///evil.example": "../", "jobs": "../",
	} {
		r := formRequest("back", to)
		if got := back(r); got != want {
			t.Errorf("%q leads to %q, want %q", to, got, want)
		}
	}
}

func TestANoticeIsShownOnceAndAsText(t *testing.T) {
	t.Parallel()
	r, w := formRequest("", ""), newRecorder()
	leaveNotice(w, "Request 1 \u202e<b>\n"+strings.Repeat("é", 3000))
	r.Method = "GET"
	r.Header.Set("Accept", "text/html")
	for _, c := range w.Result().Cookies() {
		if !c.HttpOnly || c.MaxAge > 60 {
			t.Errorf("%+v", c)
		}
		r.AddCookie(c)
	}
	again := newRecorder()
	if got := takeNotice(again, r); !strings.HasPrefix(got, "Request 1 <b>é") || len(got) > longestNotice {
		t.Errorf("%.40q", got)
	}
	if c := again.Result().Cookies(); len(c) != 1 || c[0].MaxAge >= 0 {
		t.Errorf("it is not taken: %v", c)
	}
}
