package browser

import (
	"fmt"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// An update changes what differs, and nothing else: what has the focus keeps it, what is open stays
// open, what is marked stays marked, and what is typed stays typed.
func TestAnUpdateLeavesTheReaderAlone(t *testing.T) {
	s := newSite(t, desk(), busy)
	b := newTab(t, s.url)
	b.goTo(s.url)
	b.js(`window.same = true;
		document.getElementById("q").value = "half a wo";
		document.querySelector('[data-key="fx_fixing"] summary').focus();
		document.querySelector('[data-key="fx_fixing"] details').open = true;
		getSelection().selectAllChildren(document.querySelector('[data-key="reconciliation"] th bdi'));`)
	run(t, s.db, `UPDATE leadership SET epoch = epoch + 1000, owner = $1 WHERE job_name IN ('fx_fixing', 'reconciliation')`, first)
	for _, job := range []string{"fx_fixing", "reconciliation"} {
		b.until("the new epoch of "+job, fmt.Sprintf(`Number(document.querySelector('[data-key="%s"] .epoch').textContent) > 1000`, job))
		b.until("the new holder of "+job, fmt.Sprintf(`document.querySelector('[data-key="%s"] .owner').title === %q`, job, first))
	}
	for what, is := range map[string]string{
		"the page":      `window.same === true`,
		"the focus":     `document.activeElement === document.querySelector('[data-key="fx_fixing"] summary')`,
		"the menu":      `document.querySelector('[data-key="fx_fixing"] details').open`,
		"the selection": `getSelection().toString() === "reconciliation"`,
		"what is typed": `document.getElementById("q").value === "half a wo"`,
	} {
		if !eval[bool](b, is) {
			t.Errorf("%s did not survive an update", what)
		}
	}
	b.press(kb.Escape)
	b.until("the menu to close", `!document.querySelector('[data-key="fx_fixing"] details').open`)
	b.quiet("an update")
}

// What nobody looks at asks for nothing, and neither does what was told to stop.
func TestUpdatesStopWhereNobodyLooksAndOnRequest(t *testing.T) {
	s := newSite(t, desk(), busy)
	b := newTab(t, s.url)
	b.goTo(s.url)
	still := func(what string) {
		t.Helper()
		time.Sleep(300 * time.Millisecond) // what is under way may end
		before := s.asked.Load()
		time.Sleep(3 * time.Second)
		if n := s.asked.Load() - before; n > 0 {
			t.Errorf("%s asks %d times in 3 s", what, n)
		}
	}
	moving := func(what string) {
		t.Helper()
		before := s.asked.Load()
		for deadline := time.Now().Add(patience); s.asked.Load() == before; time.Sleep(50 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("%s asks for nothing", what)
			}
		}
	}
	moving("an open page")
	hide := func(hidden bool) {
		b.js(fmt.Sprintf(`Object.defineProperty(document, "hidden", { configurable: true, get: () => %t });
			document.dispatchEvent(new Event("visibilitychange"));`, hidden))
	}
	hide(true)
	still("a hidden page")
	hide(false)
	moving("a page that is seen again")
	b.do(chromedp.Click(chromedp.CSS("#updates")))
	still("a page that was told to stop")
	if !eval[bool](b, `document.getElementById("main").classList.contains("old")`) {
		t.Error("what is no longer updated looks current")
	}
	b.accessible("stopped")
	b.do(chromedp.Click(chromedp.CSS("#updates")))
	moving("a page that was told to go on")
	b.quiet("stopping")
}

// P10: what is old says so, and how old it is, and does not stay green.
func TestWhatIsStaleLosesItsColoursAndSaysItsAge(t *testing.T) {
	s := newSite(t, desk(), busy)
	b := newTab(t, s.url)
	b.goTo(s.url)
	colour := `getComputedStyle(document.querySelector('[data-key="bridge_health"] .mark.good .icon')).color`
	green := eval[string](b, colour)
	b.until("a current page", `!document.getElementById("main").classList.contains("old")`)
	s.page.Close()
	b.until("the mark of a stale page", `document.getElementById("main").classList.contains("old")`)
	b.until("its words", `document.getElementById("note").textContent.includes("stale")`)
	b.until("its banner", `document.querySelector("main .stale")?.textContent.includes("does not answer")`)
	if eval[string](b, colour) == green {
		t.Error("what is stale stays green")
	}
	b.until("its age", `parseInt(document.getElementById("age").textContent) >= 2`)
	b.accessible("stale")
	b.quiet("stale")
}
