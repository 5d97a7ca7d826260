// Keeps an open page current. The server makes the whole page, also for those without script; this
// asks for it again, with the tag of what is shown, and patches what differs into place, so that
// focus, selection and open menus stay. Between answers it moves the ages and the leases left on.
"use strict";

const every = 2000, patience = 5000; // ms
const id = (name) => document.getElementById(name);
const main = id("main"), note = id("note"), toggle = id("updates");
let tag = "", stopped = false, stale = false, failing = false, asking = false;
let asOf = 0, taken = 0, timer = 0; // the snapshot's moment, on the database's clock and on ours

const now = () => asOf + performance.now() - taken;

function date(moment, age, isStale) {
  asOf = Date.parse(moment);
  taken = performance.now() - age;
  stale = isStale;
}

// words says a duration as the server says it.
function words(ms) {
  const s = Math.max(0, Math.floor(ms / 1000));
  if (s < 60) return `${s} s`;
  if (s < 3600) return `${Math.floor(s / 60)} m ${s % 60} s`;
  if (s < 86400) return `${Math.floor(s / 3600)} h ${Math.floor(s / 60) % 60} m`;
  return `${Math.floor(s / 86400)} d ${Math.floor(s / 3600) % 24} h`;
}

const shapes = {
  ago: (t) => `${words(now() - t)} ago`,
  in: (t) => `in ${words(t - now())}`,
  for: (t) => words(now() - t),
  left: (t) => words(t - now()),
};

const say = (node, text) => { if (node.textContent !== text) node.textContent = text; };

// tick moves everything that only time moves. What is stale stands still, dimmed.
function tick() {
  const old = stale || failing;
  main.classList.toggle("old", old || stopped);
  say(id("age"), `${words(now() - asOf)} ago`);
  say(note, stopped ? "no longer updated" : failing ? "no answer, retrying" : stale ? "stale, retrying" : "");
  if (old || stopped) return;
  for (const time of main.querySelectorAll("time[data-shape]")) {
    const at = Date.parse(time.dateTime);
    say(time, shapes[time.dataset.shape](at));
    const meter = time.parentElement.querySelector("meter");
    if (meter) meter.value = Math.max(0, (at - now()) / 1000);
  }
}

// patch makes old like next, touching only what differs.
function patch(old, next) {
  if (old.nodeType !== next.nodeType || old.nodeName !== next.nodeName) return old.replaceWith(next);
  if (old.nodeType !== Node.ELEMENT_NODE) {
    if (old.data !== next.data) old.data = next.data;
    return;
  }
  for (const { name } of [...old.attributes]) {
    if (!next.hasAttribute(name) && name !== "open") old.removeAttribute(name);
  }
  for (const { name, value } of next.attributes) {
    if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  }
  const keyed = new Map();
  for (const child of old.children) if (child.dataset.key !== undefined) keyed.set(child.dataset.key, child);
  let at = old.firstChild;
  for (const child of [...next.childNodes]) {
    const key = child.dataset?.key;
    if (key !== undefined && keyed.has(key)) {
      const same = keyed.get(key);
      if (same === at) at = at.nextSibling;
      else old.insertBefore(same, at);
      patch(same, child);
    } else if (key === undefined && at && at.dataset?.key === undefined) {
      const following = at.nextSibling;
      patch(at, child);
      at = following;
    } else {
      old.insertBefore(child, at);
    }
  }
  while (at) {
    const following = at.nextSibling;
    if (!at.contains(document.activeElement)) at.remove();
    at = following;
  }
}

async function ask() {
  if (asking || stopped || document.hidden) return;
  asking = true;
  try {
    const headers = tag ? { "If-None-Match": tag } : {};
    const answer = await fetch(location.href, { headers, cache: "no-store", signal: AbortSignal.timeout(patience) });
    if (answer.status !== 304 && !answer.ok) throw new Error(answer.statusText);
    const html = answer.status === 304 ? "" : await answer.text();
    if (stopped) return;
    if (html) patch(main, new DOMParser().parseFromString(html, "text/html").getElementById("main"));
    tag = answer.headers.get("ETag") || tag;
    const moment = answer.headers.get("Rota-As-Of");
    date(moment, 1000 * answer.headers.get("Rota-Age"), answer.headers.has("Rota-Stale"));
    id("as-of").dateTime = moment;
    say(id("as-of"), `${moment.slice(0, 19).replace("T", " ")} UTC`);
    failing = false;
  } catch {
    failing = true;
  } finally {
    asking = false;
    tick();
  }
}

function go() {
  clearInterval(timer);
  if (!stopped && !document.hidden) {
    timer = setInterval(ask, every);
    ask();
  }
  tick();
}

toggle.addEventListener("click", () => {
  stopped = !stopped;
  say(toggle, stopped ? "Update again" : "Stop updating");
  go();
});
document.addEventListener("visibilitychange", go);
date(main.dataset.asOf, Number(main.dataset.age), main.dataset.stale === "true");
toggle.hidden = false;
setInterval(tick, 1000);
go();
