package browser

import (
	"context"
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

//go:embed testdata/axe.min.js
var axe string

// patience bounds each thing that is waited for: a busy machine is slow.
const patience = 30 * time.Second

// program is the browser; where there is none the test is skipped, and fails in CI.
func program(t *testing.T) string {
	t.Helper()
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	if os.Getenv("CI") != "" {
		t.Fatal("there is no Chromium, and CI must have it: scripts/setup prove installs it")
	}
	t.Skip("there is no Chromium: scripts/setup prove installs it")
	return ""
}

// one browser serves all tests, each in a context of its own.
var one struct {
	sync.Once
	ctx context.Context
	end context.CancelFunc
}

func TestMain(m *testing.M) {
	code := m.Run()
	if one.end != nil {
		one.end()
	}
	os.Exit(code)
}

// A tab is a page in the browser, with all that it complained of.
type tab struct {
	t    *testing.T
	ctx  context.Context
	mu   sync.Mutex
	said []string
}

func newTab(t *testing.T, site string) *tab {
	t.Helper()
	path := program(t)
	one.Do(func() {
		opts := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.NoSandbox, chromedp.WSURLReadTimeout(patience),
			chromedp.Flag("lang", "en-GB"), chromedp.Env("TZ=America/New_York"))
		ctx, end := chromedp.NewExecAllocator(context.Background(), opts...)
		browser, stop := chromedp.NewContext(ctx)
		one.ctx, one.end = browser, func() { stop(); end() }
	})
	if err := chromedp.Do(one.ctx); err != nil {
		t.Fatalf("start Chromium: %v", err)
	}
	ctx, end := chromedp.NewContext(one.ctx, chromedp.WithNewBrowserContext())
	t.Cleanup(end)
	b := &tab{t: t, ctx: ctx}
	if err := chromedp.Do(ctx); err != nil {
		t.Fatalf("open a tab: %v", err)
	}
	if err := chromedp.Listen(ctx, b.hear); err != nil {
		t.Fatalf("listen to a tab: %v", err)
	}
	b.do(chromedp.Navigate(site))
	return b
}

// hear notes what the console is told, reports of the policy among it, and dialogs of scripts.
func (b *tab) hear(event any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch e := event.(type) {
	case *runtime.EventConsoleAPICalled:
		for _, arg := range e.Args {
			b.said = append(b.said, fmt.Sprintf("console %s: %s", e.Type, arg.Value))
		}
	case *runtime.EventExceptionThrown:
		b.said = append(b.said, fmt.Sprintf("exception: %s %v", e.ExceptionDetails.Text, e.ExceptionDetails.Exception))
	case *log.EventEntryAdded:
		b.said = append(b.said, fmt.Sprintf("%s %s: %s %s", e.Entry.Source, e.Entry.Level, e.Entry.Text, e.Entry.URL))
	case *page.EventJavascriptDialogOpening:
		b.said = append(b.said, "a script ran: "+e.Message)
		go func() { _ = chromedp.Do(b.ctx, call(page.HandleJavaScriptDialog, page.HandleJavaScriptDialogParams{})) }()
	}
}

// quiet fails the test if anything was complained of, and forgets it. What it may have said is told.
func (b *tab) quiet(where string, but ...string) {
	b.t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, said := range b.said {
		expected := false
		for _, part := range but {
			expected = expected || strings.Contains(said, part)
		}
		if !expected {
			b.t.Errorf("%s: the browser complains: %s", where, said)
		}
	}
	b.said = nil
}

// call is a command of the browser's protocol.
func call[P any](command cdp.Command[P, cdp.Empty], params P) chromedp.Action[chromedp.Void] {
	return chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, command, params)
		return err
	})
}

func (b *tab) do(actions ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	ctx, end := context.WithTimeout(b.ctx, patience)
	defer end()
	if err := chromedp.Do(ctx, actions...); err != nil {
		b.t.Fatalf("the browser: %v", err)
	}
}

// js runs statements in the page.
func (b *tab) js(statements string) {
	b.t.Helper()
	b.do(chromedp.Evaluate[chromedp.Void]("{" + statements + "}"))
}

// eval evaluates an expression in the page.
func eval[T any](b *tab, expression string) T {
	b.t.Helper()
	ctx, end := context.WithTimeout(b.ctx, patience)
	defer end()
	v, err := chromedp.Run(ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
	if err != nil {
		b.t.Fatalf("%s: %v", expression, err)
	}
	return v
}

// until waits for an expression to be true.
func (b *tab) until(what, expression string) {
	b.t.Helper()
	for deadline := time.Now().Add(patience); !eval[bool](b, "Boolean("+expression+")"); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			b.t.Fatalf("%s: not within %v; the page says:\n%s", what, patience, eval[string](b, "document.body.innerText"))
		}
	}
}

// shape makes the tab so wide, and its theme one that the reader prefers.
func (b *tab) shape(width, height int64, theme string) {
	b.t.Helper()
	b.do(chromedp.EmulateViewport(width, height),
		call(emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: theme}}}))
}

func (b *tab) goTo(address string) {
	b.t.Helper()
	b.do(chromedp.Navigate(address))
	b.until("the script", `document.documentElement.classList.contains("script")`)
}

// accessible fails the test for each thing that axe finds.
func (b *tab) accessible(where string) {
	b.t.Helper()
	for _, v := range b.violations() {
		b.t.Errorf("%s: %s", where, v)
	}
}

func (b *tab) violations() []string {
	b.t.Helper()
	if !eval[bool](b, `"axe" in window`) {
		b.do(chromedp.Evaluate[chromedp.Void](axe))
	}
	return eval[[]string](b, `axe.run(document, {
		runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"], preload: false, resultTypes: ["violations"],
	}).then((r) => r.violations.flatMap((v) => v.nodes.map((n) => v.id + ": " + v.help + ": " + n.html.slice(0, 300) + " " + (n.any[0]?.message || ""))))`)
}

// fits fails the test if the page is wider than its window.
func (b *tab) fits(where string) {
	b.t.Helper()
	if over := eval[int](b, `document.documentElement.scrollWidth - document.documentElement.clientWidth`); over > 0 {
		wide := eval[string](b, `[...document.querySelectorAll("main *, header *, footer *")].filter((n) => n.getBoundingClientRect().right > document.documentElement.clientWidth + 1).map((n) => n.outerHTML.slice(0, 120)).slice(0, 3).join("\n")`)
		b.t.Errorf("%s is %d pixels wider than the window:\n%s", where, over, wide)
	}
}

// labelled fails the test for each cell that shows its label and says nothing: in a narrow window the
// label has no line to stand on, and falls out of its card.
func (b *tab) labelled(where string) {
	b.t.Helper()
	for _, cell := range eval[[]string](b, `[...document.querySelectorAll("td[data-label]")].filter((n) => n.getClientRects().length && getComputedStyle(n, "::before").content !== "none" && !n.innerText.trim() && !n.querySelector("svg, meter")).map((n) => n.outerHTML.slice(0, 200))`) {
		b.t.Errorf("%s: an empty cell has a label: %s", where, cell)
	}
}

// press presses a key as a keyboard does.
func (b *tab) press(key string) {
	b.t.Helper()
	b.do(chromedp.KeyEvent(key))
}

// tabTo presses Tab until the wanted element has the focus.
func (b *tab) tabTo(selector string) {
	b.t.Helper()
	for range 200 {
		if eval[bool](b, fmt.Sprintf("document.activeElement.matches(%q)", selector)) {
			return
		}
		b.press(kb.Tab)
	}
	b.t.Fatalf("200 times Tab do not lead to %s", selector)
}
