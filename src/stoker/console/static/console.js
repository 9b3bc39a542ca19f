// What the pages need beside htmx: polls only while somebody looks, says that the server is away, follows a log, asks before a deletion.
"use strict";
(() => {
  const away = document.getElementById("away");
  const live = () => document.getElementById("live");
  let version = "", key = live()?.dataset.key;

  function tell(text) {
    if (away.hidden === !text && away.textContent === text) return;
    away.textContent = text;
    away.hidden = !text;
  }

  // --- the changing part of a page ---
  document.addEventListener("htmx:config:request", (event) => {
    const request = event.detail.ctx.request;
    if (document.hidden) { event.preventDefault(); return; }
    request.headers["X-Seen"] = version;
  });
  document.addEventListener("htmx:before:swap", (event) => {
    const answer = event.detail.ctx?.response;
    if (answer && answer.status >= 400) event.preventDefault();
  });
  document.addEventListener("htmx:before:response", (event) => {
    const ctx = event.detail.ctx, answer = ctx.response;
    const raw = answer.raw || answer;
    if (raw.ok) {
      tell("");
      version = raw.headers.get("x-version") || version;
      return;
    }
    tell(raw.status === 401 ? away.dataset.console : raw.status === 404 ? away.dataset.gone : away.dataset.server);
    event.preventDefault();
  });
  document.addEventListener("htmx:error", () => tell(away.dataset.console));
  document.addEventListener("htmx:after:swap", () => {
    const now = live()?.dataset.key;
    if (now !== key) { key = now; document.dispatchEvent(new Event("stoker:key")); }
  });
  if (document.querySelector("[data-away]")) {  // a page that could not be shown since the server is away
    tell(away.dataset.server);
    setInterval(async () => {
      try { if ((await fetch("/runs.json?state=running")).ok) location.reload(); } catch { tell(away.dataset.console); }
    }, 2000);
  }

  document.addEventListener("submit", (event) => {
    const question = event.target.dataset?.confirm;
    if (question && !confirm(question)) event.preventDefault();
  });

  // --- the log ---
  const log = document.getElementById("log");
  if (!log) return;
  const LINES = 5000, SLOTS = 4;  // lines that are kept in the page; streams at once over all pages: a browser opens six
  const src = log.dataset.src, follow = document.getElementById("log-follow"), pick = document.getElementById("log-attempt");
  const lines = [];  // elements; the last one may still grow
  let begin = 0, end = 0, attempt = Number(live().dataset.attempt), open = null, timer = 0, release = null, generation = 0;

  const line = (text) => { const element = document.createElement("span"); element.textContent = text; return element; };
  const shown = (text) => text.replace(/\r+$/, "").split("\r").pop();  // what a terminal shows after carriage returns

  function append(text) {
    if (!text) return;
    const down = follow.checked && log.scrollHeight - log.scrollTop - log.clientHeight < 80;
    if (!lines.length) log.replaceChildren();
    const parts = text.split("\n");
    const last = lines[lines.length - 1];
    if (last && last.open) {
      const whole = last.raw + parts.shift();
      last.raw = whole.slice(-20000);
      last.open = parts.length === 0;
      last.element.textContent = shown(last.raw) + (last.open ? "" : "\n");
    }
    const fresh = document.createDocumentFragment();
    for (let i = Math.max(0, parts.length - LINES - 1); i < parts.length; i++) {
      const closed = i < parts.length - 1;
      if (!closed && parts[i] === "") continue;
      const element = line(shown(parts[i]) + (closed ? "\n" : ""));
      lines.push({ element, raw: parts[i], open: !closed });
      fresh.append(element);
    }
    log.append(fresh);
    while (lines.length > LINES) lines.shift().element.remove();
    if (down) log.scrollTop = log.scrollHeight;
  }

  function prepend(text) {
    const parts = text.split("\n");
    if (parts[parts.length - 1] === "") parts.pop();
    const before = log.scrollHeight;
    const made = parts.map((part) => ({ element: line(`${shown(part)}\n`), raw: part, open: false }));
    const fresh = document.createDocumentFragment();
    fresh.append(...made.map((each) => each.element));
    log.prepend(fresh);
    lines.unshift(...made);
    log.scrollTop += log.scrollHeight - before;
  }

  const ask = async (words) => {
    const answer = await fetch(`${src}.json?attempt=${attempt}${words}`, { headers: { accept: "application/json" } });
    if (!answer.ok) throw new Error(String(answer.status));
    return answer.json();
  };

  function close() {
    generation += 1;
    open?.close();
    open = null;
    clearTimeout(timer);
    release?.();
    release = null;
  }

  function stream(mine) {
    open = new EventSource(`${src}/live?attempt=${attempt}&begin=${end}`);
    open.onmessage = (event) => { if (mine === generation) { end = Number(event.lastEventId); append(JSON.parse(event.data)); } };
    open.addEventListener("end", close);
  }

  async function poll(mine) {
    try {
      const part = await ask(`&begin=${end}`);
      if (mine !== generation) return;
      end = part.end;
      append(part.text);
      if (!part.text && live().dataset.final) return;
    } catch { /* away: asked again */ }
    timer = setTimeout(() => poll(mine), 1000);
  }

  async function listen() {
    close();
    if (document.hidden || !attempt) return;
    const mine = generation;
    for (let slot = 0; slot < SLOTS && navigator.locks; slot++) {
      const got = await new Promise((answer) => navigator.locks.request(`stoker-log-${slot}`, { ifAvailable: true }, (lock) => {
        if (!lock) { answer(false); return undefined; }
        return new Promise((free) => { if (mine === generation) { release = free; answer(true); } else { free(); answer(false); } });
      }));
      if (mine !== generation) return;
      if (got) { stream(mine); return; }
    }
    poll(mine);
  }

  async function show(number) {
    close();
    const mine = generation;
    attempt = number;
    lines.length = 0;
    log.replaceChildren(log.dataset.empty);
    if (!attempt) return;
    try {
      const part = await ask("");
      if (mine !== generation) return;
      begin = part.begin;
      end = part.end;
      append(part.text);
      log.scrollTop = log.scrollHeight;
    } catch { timer = setTimeout(() => show(number), 1000); return; }
    document.getElementById("log-earlier").disabled = begin === 0;
    listen();
  }

  document.getElementById("log-earlier").addEventListener("click", async () => {
    try {
      const part = await ask(`&end=${begin}`);
      begin = part.begin;
      prepend(part.text);
      document.getElementById("log-earlier").disabled = begin === 0;
    } catch { /* the banner says why */ }
  });
  document.getElementById("log-error").addEventListener("click", () => {
    log.querySelectorAll(".found").forEach((each) => each.classList.remove("found"));
    const hit = lines.findLast((each) => /\b(error|exception|traceback|fatal|killed|nan)\b|Error\b/i.test(each.raw));
    if (!hit) return;
    follow.checked = false;
    hit.element.classList.add("found");
    hit.element.scrollIntoView({ block: "center" });
  });
  pick?.addEventListener("change", () => show(Number(pick.value)));
  document.addEventListener("visibilitychange", () => { if (document.hidden) close(); else listen(); });
  document.addEventListener("htmx:after:swap", () => {  // a new attempt has begun: its log is shown
    const now = Number(live().dataset.attempt);
    if (now > attempt && (!pick || Number(pick.value) === attempt)) show(now);
  });
  show(attempt);
})();
