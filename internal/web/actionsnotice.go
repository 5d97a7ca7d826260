package web

import (
	"encoding/base64"
	"net/http"
	"strings"
	"unicode"
	"unicode/utf8"
)

// noticeCookie carries one line from the answer to a form to the page that it leads back to. Anybody
// who can set a cookie could set it: it is shown as text, and says nothing that anything goes by.
const noticeCookie = "rota-notice"

// longestNotice is in bytes; a cookie has at most 4 KiB.
const longestNotice = 1000

func leaveNotice(w http.ResponseWriter, text string) {
	text = strings.ToValidUTF8(text[:min(len(text), longestNotice)], "")
	setNotice(w, base64.RawURLEncoding.EncodeToString([]byte(text)), 30)
}

func setNotice(w http.ResponseWriter, value string, age int) {
	http.SetCookie(w, &http.Cookie{
		Name: noticeCookie, Value: value, Path: "/", MaxAge: age, HttpOnly: true, SameSite: http.SameSiteStrictMode,
	})
}

// takeNotice takes it from where it was left, once; a form's answer leaves the next.
func takeNotice(w http.ResponseWriter, r *http.Request) string {
	c, err := r.Cookie(noticeCookie)
	if err != nil || r.Method != http.MethodGet || !strings.Contains(r.Header.Get("Accept"), "text/html") {
		return ""
	}
	setNotice(w, "", -1)
	text, err := base64.RawURLEncoding.DecodeString(c.Value)
	if err != nil || len(text) > longestNotice || !utf8.Valid(text) {
		return ""
	}
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return -1
		}
		return r
	}, string(text))
}

// noticeOf is what became of the order that led here; empty: there was none.
func noticeOf(r *http.Request) string { return visitOf(r).notice }
