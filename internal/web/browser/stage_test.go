package browser

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

var pageAt = regexp.MustCompile(`The page: (http://\S+)`)

// dev starts it, and returns the page's address once all is led.
func dev(t *testing.T) (address string) {
	t.Helper()
	cmd := exec.Command(build(t), "dev", "--listen", "127.0.0.1:0")
	for _, pair := range os.Environ() {
		if !strings.HasPrefix(pair, "DATABASE_URL=") && !strings.HasPrefix(pair, "PG") && !strings.HasPrefix(pair, "ROTA_") {
			cmd.Env = append(cmd.Env, pair)
		}
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-ended:
		case <-time.After(patience):
			_ = cmd.Process.Kill()
		}
		_ = cmd.Wait()
	})
	served := make(chan string, 1)
	go func() {
		defer close(ended)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			if m := pageAt.FindStringSubmatch(lines.Text()); m != nil {
				served <- m[1]
			}
		}
	}()
	select {
	case address = <-served:
	case <-time.After(patience):
		t.Fatal("dev shows no page")
	}
	return address
}

// The story, played by clicks alone: the leader is frozen, another takes over with the next epoch, the
// leader is thawed, and its late write is refused. Then without a mouse, and without script.
func TestTheStoryIsPlayedByClicks(t *testing.T) {
	address := dev(t)
	b := newTab(t, address)
	b.shape(1280, 900, "light")
	b.goTo(address)
	holder := `document.querySelector('[data-key="bridge_health"] .owner')?.textContent`
	epoch := `Number(document.querySelector('[data-key="bridge_health"] .epoch')?.textContent)`
	b.until("bridge_health is led", holder+` && document.querySelectorAll(".stage .players form").length === 9`)
	first, before := eval[string](b, holder), eval[int](b, epoch)
	button := func(replica, act string) string { return fmt.Sprintf(`form[data-key="%s-%s"] button`, replica, act) }
	step := func(state, text string) string {
		return fmt.Sprintf(`[...document.querySelectorAll(".stage .steps li.%s")].some((li) => li.textContent.includes(%q))`, state, text)
	}
	b.js(`window.same = true`)

	b.do(chromedp.Click(chromedp.CSS(button(first, "freeze"))))
	b.until("it is frozen", step("done", "is frozen (SIGSTOP) in the middle of a run"))
	b.accessible("the stage while a lease runs out")
	b.until("the takeover", step("done", fmt.Sprintf("has taken over, with epoch %d", before+1)))
	b.until("the takeover, in the table", fmt.Sprintf(`%s !== %q && %s === %d`, holder, first, epoch, before+1))
	b.until("the raise", step("done", "raises the epoch"))
	b.until("the terminal's lines", `document.querySelector(".stage .told").textContent.includes("ran out")`)
	for theme, width := range map[string]int64{"dark": 390, "light": 1280} {
		where := fmt.Sprintf("the stage, %s, %d pixels", theme, width)
		b.shape(width, 900, theme)
		b.accessible(where)
		b.fits(where)
	}

	// The button that froze it thaws it now, and the keyboard finds it.
	b.tabTo(button(first, "freeze"))
	b.press(kb.Enter)
	b.until("the late write", step("done", "and is refused"))
	b.until("where the late write is counted", step("done", "no run's"))
	b.until("the end of its term", step("done", "its term is over"))
	if !eval[bool](b, fmt.Sprintf(`window.same && document.activeElement.matches(%q)`, button(first, "freeze"))) {
		t.Error("the page was loaded anew, or the focus is elsewhere")
	}
	if eval[bool](b, `document.querySelector(".stage .bad")`+" !== null") {
		t.Error("a step did not come out as promised")
	}
	if said := eval[string](b, `document.getElementById("notice").textContent`); said != "" {
		t.Errorf("a notice is left of what has passed: %s", said)
	}
	b.quiet("the story")

	b.do(call(emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true}))
	kill := chromedp.CSS(button(first, "kill"))
	b.do(chromedp.Navigate(address+"/replicas"), chromedp.Click(kill), chromedp.WaitVisible(chromedp.CSS("#notice p")))
	b.do(call(emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{}))
	b.goTo(address + "/replicas")
	b.until("it is gone", fmt.Sprintf(`document.querySelector(%q).textContent.startsWith("Start again")`, button(first, "kill")))
	b.do(chromedp.Click(kill))
	b.until("it is back", step("done", "is started again"))
	b.quiet("a replica that is killed and started")
}
