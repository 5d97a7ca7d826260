// Keeps an open page current. The server makes the whole page, also for those without script; this
// asks for its main part again, with the tag of what is shown, and patches what differs into place, so
// that focus, selection and open menus stay. Between answers it moves the ages and the leases left on.
// It also says times in the chosen zone, and shows the forms of orders as dialogs.
"use strict";

const every = 1200, patience = 5000, tooOld = 10000; // ms
const id = (name) => document.getElementById(name);
const main = id("main"), note = id("note"), toggle = id("updates"), dialog = id("dialog");
const live = "live" in main.dataset;
let tag = "", stopped = false, stale = false, failing = false, asking = false;
let asOf = 0, taken = 0, timer = 0; // the snapshot's moment, on the database's clock and on ours

const now = () => asOf + performance.now() - taken;
const say = (node, text) => { if (node.textContent !== text) node.textContent = text; };
const recall = (name) => { try { return localStorage.getItem(name); } catch { return null; } };
const keep = (name, value) => { try { localStorage.setItem(name, value); } catch { /* for this page alone */ } };

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

// Times, in the zone that was chosen.
const here = Intl.DateTimeFormat().resolvedOptions().timeZone;
const clocks = new Map();
let zone = recall("rota-zone") || "utc";

function clock(name) {
  if (!clocks.has(name)) {
    const parts = { year: "numeric", month: "2-digit", day: "2-digit", hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23", timeZoneName: "short" };
    try {
      clocks.set(name, new Intl.DateTimeFormat("en-GB", { ...parts, timeZone: name }));
    } catch {
      clocks.set(name, clock("UTC")); // a zone that this browser does not know
    }
  }
  return clocks.get(name);
}

function moment(time, name) {
  const p = Object.fromEntries(clock(name).formatToParts(Date.parse(time.dateTime)).map((part) => [part.type, part.value]));
  return `${p.year}-${p.month}-${p.day} ${p.hour}:${p.minute}:${p.second} ${p.timeZoneName}`;
}

function dress(all = document) {
  for (const time of all.querySelectorAll("time[data-shape]")) {
    const near = zone === "local" ? here : zone === "job" && time.closest("[data-zone]")?.dataset.zone || "UTC";
    const text = moment(time, time.dataset.shape === "local" ? here : near);
    if (time.dataset.shape === "at" || time.dataset.shape === "local") say(time, text);
    if (time.title !== text && time.id !== "as-of") time.title = text;
  }
}

function date(moment, age, isStale) {
  asOf = Date.parse(moment);
  taken = performance.now() - age;
  stale = isStale;
}

// tick moves everything that only time moves. What is stale stands still, without its colours.
function tick() {
  if (!live) return;
  const old = stale || failing || stopped || now() - asOf > tooOld;
  main.classList.toggle("old", old);
  say(id("age"), `${words(now() - asOf)} ago`);
  say(note, stopped ? "no longer updated" : failing ? "no answer, retrying" : stale ? "stale, retrying" : old ? "old, asking" : "");
  if (old) return;
  for (const time of main.querySelectorAll("time[data-shape]")) {
    const shape = shapes[time.dataset.shape];
    if (!shape) continue;
    const at = Date.parse(time.dateTime);
    say(time, shape(at));
    const meter = time.dataset.shape === "left" && time.parentElement.querySelector("meter");
    if (meter) meter.value = Math.max(0, (at - now()) / 1000);
  }
}

// patch makes old like next, touching only what differs. What is open is the reader's own affair.
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
    if (old.getAttribute(name) !== value && name !== "open") old.setAttribute(name, value);
  }
  if (old.matches("time[data-shape], select, textarea")) return; // their text is ours, and the reader's
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

const parse = (html) => new DOMParser().parseFromString(html, "text/html");

async function ask() {
  if (asking || stopped || document.hidden) return;
  asking = true;
  try {
    const headers = { "Rota-Part": "main" };
    if (tag) headers["If-None-Match"] = tag;
    const answer = await fetch(location.href, { headers, cache: "no-store", signal: AbortSignal.timeout(patience) });
    if (answer.status !== 304 && !answer.ok) throw new Error(answer.statusText);
    const html = answer.status === 304 ? "" : await answer.text();
    if (stopped) return;
    if (html) patch(main, parse(html).getElementById("main"));
    tag = answer.headers.get("ETag") || tag;
    date(answer.headers.get("Rota-As-Of"), 1000 * answer.headers.get("Rota-Age"), answer.headers.has("Rota-Stale"));
    id("as-of").dateTime = answer.headers.get("Rota-As-Of");
    dress(html ? document : id("as-of").parentElement);
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

// An order's form is shown over the page that offers it, and sent from there. Its links are seen from
// its own address.
function show(order, address) {
  for (const node of order.querySelectorAll("form")) node.action = new URL(node.getAttribute("action"), address);
  for (const node of order.querySelectorAll("a")) node.href = new URL(node.getAttribute("href"), address);
  dialog.replaceChildren(order);
}

async function open(link) {
  const answer = await fetch(link.href, { cache: "no-store", signal: AbortSignal.timeout(patience) });
  const order = parse(await answer.text()).getElementById("order");
  if (!order) throw new Error("no form");
  show(order, answer.url);
  dialog.showModal();
}

async function send(form) {
  const answer = await fetch(form.action, { method: "POST", body: new URLSearchParams(new FormData(form)), headers: { Accept: "text/html" } });
  const page = parse(await answer.text());
  if (answer.ok && answer.redirected) {
    // Of an act the stage itself tells, and goes on to tell what has become of it.
    id("notice").replaceChildren(...(form.matches("[data-act]") ? [] : page.getElementById("notice").childNodes));
    dialog.close();
    tag = "";
    ask();
    return;
  }
  const again = page.getElementById("order");
  if (again) return show(again, answer.url);
  if (!dialog.contains(form)) throw new Error("refused"); // the page that says why is shown
  const problem = document.createElement("p");
  problem.className = "problem";
  problem.setAttribute("role", "alert");
  problem.textContent = [...page.querySelectorAll("main h1, main h1 + p")].map((node) => node.textContent).join(" ") || `The server answered ${answer.status}.`;
  dialog.querySelector(".problem")?.remove();
  form.before(problem);
}

document.addEventListener("click", (event) => {
  const link = event.target.closest("a[data-order]");
  for (const menu of document.querySelectorAll("details.menu[open]")) {
    if (link ? menu.contains(link) : !menu.contains(event.target)) menu.open = false;
  }
  if (event.target.closest("[data-close]") && dialog.open) {
    event.preventDefault();
    dialog.close();
  }
  if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  const menu = link.closest("details.menu");
  (menu ? menu.querySelector("summary") : link).focus(); // where the focus comes back to
  open(link).catch(() => { location.href = link.href; });
});
dialog.addEventListener("submit", (event) => {
  event.preventDefault();
  const button = event.target.querySelector("[type=submit]");
  button.disabled = true;
  send(event.target).catch(() => { event.target.submit(); }).finally(() => { button.disabled = false; });
});
// An act of dev's stage is played without leaving the page; without script the page is loaded anew.
document.addEventListener("submit", (event) => {
  if (!event.target.matches("form[data-act]")) return;
  event.preventDefault();
  send(event.target).catch(() => { event.target.submit(); });
});
document.addEventListener("keydown", (event) => {
  const menu = event.key === "Escape" && document.activeElement.closest("details.menu[open]");
  if (!menu) return;
  menu.open = false;
  menu.querySelector("summary").focus();
});

function choose(select, value, chosen) {
  select.value = value;
  select.addEventListener("change", () => chosen(select.value));
}
choose(id("zone"), zone, (value) => { zone = value; keep("rota-zone", value); dress(); });
choose(id("theme"), document.documentElement.dataset.theme || "auto", (value) => { keep("rota-theme", value); document.documentElement.dataset.theme = value; });
id("settings").hidden = false;
document.documentElement.classList.add("script");
dress();
if (live) {
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
}
