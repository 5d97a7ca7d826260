package browser

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// audited waits for a line of the audit that an order from the page has left.
func audited(t *testing.T, s *site, action, reason string) {
	t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		var there bool
		err := s.db.QueryRow(t.Context(), `SELECT EXISTS (SELECT FROM audit WHERE via = 'page' AND action = $1 AND reason = $2)`, action, reason).Scan(&there)
		if err != nil {
			t.Fatal(err)
		}
		if there {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("no line of the audit tells of %s", action)
		}
	}
}

// Each order can be given with the keyboard alone: the way to it, its form, and back to where it was
// given, where its result is said.
func TestEachOrderIsGivenWithTheKeyboardAlone(t *testing.T) {
	s := newSite(t, desk(), busy)
	b := newTab(t, s.url)
	b.shape(1280, 900, "light")
	var running int64
	if err := s.db.QueryRow(t.Context(), `SELECT id FROM runs WHERE ended_at IS NULL`).Scan(&running); err != nil {
		t.Fatal(err)
	}
	row := func(job string) string { return fmt.Sprintf(`[data-key="%s"] summary`, job) }
	for _, o := range []struct {
		page, menu, link, typed, action string
		reason                          bool
	}{
		{"/", row("bridge_health"), "a.order-run", "", "run", true},
		{"/", row("bridge_health"), "a.order-pause", "", "pause", true},
		{"/", row("bridge_health"), "a.order-resume", "", "resume", true},
		{"/", row("bridge_health"), "a.order-step-down", "", "step_down", true},
		{"/jobs/reconciliation", "", "a.order-revoke", "reconciliation", "revoke", true},
		{"/", "", "a.order-pause-all", "all", "pause", true},
		{"/", "", "a.order-resume-all", "", "resume", true},
		{fmt.Sprintf("/jobs/quote_watch/runs/%d", running), "", "a.order-cancel", "", "cancel", true},
		{"/replicas", "", "a.order-drain", "", "drain", true},
	} {
		b.goTo(s.url + o.page)
		b.js(`window.same = true`)
		opener := o.link
		if o.menu != "" {
			opener = o.menu
			b.tabTo(o.menu)
			b.press(kb.Enter)
			b.tabTo(o.menu + " ~ ul " + o.link)
		} else {
			b.until(o.link, fmt.Sprintf("document.querySelector(%q)", o.link))
			b.tabTo(o.link)
		}
		b.press(kb.Enter)
		b.until("the form of "+o.action, `document.getElementById("dialog").open`)
		if o.action == "revoke" || o.action == "run" || o.typed == "all" {
			b.accessible("the dialog of " + o.action)
		}
		if !eval[bool](b, `document.getElementById("dialog").contains(document.activeElement)`) {
			t.Errorf("%s: the focus is not in the form", o.action)
		}
		reason := strings.TrimSpace(fmt.Sprintf("%s by keyboard %s", o.action, o.typed))
		b.tabTo("#reason")
		b.do(chromedp.KeyEvent(reason))
		if o.typed != "" {
			b.tabTo("#typed")
			b.do(chromedp.KeyEvent("not " + o.typed))
			b.press(kb.Enter)
			b.until("what is wrong, beside the form", `document.querySelector("#dialog .problem")`)
			if got := eval[string](b, `document.querySelector("#dialog #reason").value`); got != reason {
				t.Errorf("%s: after a refusal the reason is %q", o.action, got)
			}
			b.tabTo("#typed")
			b.do(chromedp.KeyEvent(o.typed))
		}
		b.tabTo("#dialog [type=submit]")
		b.press(kb.Enter)
		b.until("the result of "+o.action, `!document.getElementById("dialog").open && document.getElementById("notice").textContent.trim()`)
		audited(t, s, o.action, reason)
		if !eval[bool](b, fmt.Sprintf(`window.same && (document.activeElement.matches(%q) || document.activeElement === document.body || !document.querySelector(%q))`, opener, opener)) {
			t.Errorf("%s: afterwards the focus is at %s", o.action, eval[string](b, `document.activeElement.outerHTML.slice(0, 100)`))
		}
		b.quiet(o.action, "status of 400")
	}
	// Escape leaves a form, and nothing is done.
	b.goTo(s.url + "/jobs/fx_fixing")
	b.tabTo("a.order-pause")
	b.press(kb.Enter)
	b.until("the form", `document.getElementById("dialog").open`)
	b.press(kb.Escape)
	b.until("the form to close", `!document.getElementById("dialog").open`)
	if !eval[bool](b, `document.activeElement.matches("a.order-pause")`) {
		t.Error("the focus does not come back to what opened the form")
	}
}

// Without script each form is a page of its own, and leads back.
func TestOrdersAreGivenWithoutScript(t *testing.T) {
	s := newSite(t, desk(), busy)
	b := newTab(t, s.url)
	b.do(call(emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true}))
	css := func(selector string) chromedp.CSS { return chromedp.CSS(selector) }
	b.do(chromedp.Navigate(s.url+"/?show=held"), chromedp.Click(css(`[data-key="fx_fixing"] summary`)), chromedp.Click(css(`[data-key="fx_fixing"] a.order-pause`)),
		chromedp.WaitVisible(css("#reason")), chromedp.SendKeys(css("#reason"), "no script"), chromedp.Click(css("[type=submit].main")), chromedp.WaitVisible(css("#notice p")))
	audited(t, s, "pause", "no script")
	at, err := chromedp.Run(b.ctx, chromedp.Location())
	if err != nil {
		t.Fatal(err)
	}
	if at != s.url+"/?show=held" {
		t.Errorf("the form led to %s", at)
	}
	b.quiet("without script")
}
