// The log of a run: a list of lines of which only those in sight are in the page, live, with search and "jump to error".
"use strict";
(() => {
  const log = document.getElementById("log");
  if (!log) return;
  const KEPT = 100000, CHUNK_MAX = 4000, SLOTS = 4, OVER = 20, LONG = 20000, FAR = 1 << 20;
  // lines that are kept; streams at once over all pages (a browser opens six); lines above and below the sight; characters of a line
  const src = log.dataset.src, follow = document.getElementById("log-follow"), pick = document.getElementById("log-attempt");
  const said = document.getElementById("log-said"), search = document.getElementById("log-search");
  const live = () => document.getElementById("live");
  const space = document.createElement("div"), view = document.createElement("div");
  space.className = "log-space";
  view.className = "log-view";
  space.append(view);

  // lines: what is loaded, of the bytes begin to end. marks: where pieces began: {line, at}; older ones are let go whole.
  let lines = [], marks = [], grows = false, begin = 0, end = 0, size = 0, marked = -1, hit = null;
  let attempt = Number(live().dataset.attempt), open = null, timer = 0, release = null, generation = 0, painting = 0, high = 18, asking = false;

  const shown = (text) => text.replace(/\r+$/, "").split("\r").pop().slice(0, LONG);  // what a terminal shows after carriage returns
  const atBottom = () => log.scrollHeight - log.scrollTop - log.clientHeight < 80;

  // --- what is in sight ---
  function paint() {
    painting = 0;
    const total = lines.length;
    if (!total) { log.replaceChildren(log.dataset.empty); return; }
    if (space.parentNode !== log) log.replaceChildren(space);
    space.style.height = `${total * high}px`;
    const first = Math.max(0, Math.floor(log.scrollTop / high) - OVER);
    const upto = Math.min(total, Math.ceil((log.scrollTop + log.clientHeight) / high) + OVER);
    const made = [];
    for (let i = first; i < upto; i++) {
      const element = document.createElement("span");
      element.textContent = `${shown(lines[i])}\n`;
      if (i === marked) element.className = "found";
      made.push(element);
    }
    view.replaceChildren(...made);
    view.style.transform = `translateY(${first * high}px)`;
    log.dataset.lines = String(total);
  }
  const repaint = () => { if (!painting) painting = requestAnimationFrame(paint); };

  function bottom() {
    space.style.height = `${lines.length * high}px`;
    if (space.parentNode !== log && lines.length) log.replaceChildren(space);
    log.scrollTop = log.scrollHeight;
    paint();
  }

  // --- what is loaded ---
  function append(text, upto) {
    const down = follow.checked && (lines.length === 0 || atBottom());
    if (text) {
      const parts = text.split("\n");
      marks.push({ line: lines.length, at: end, whole: !grows });
      if (grows) lines[lines.length - 1] = (lines[lines.length - 1] + parts.shift()).slice(-LONG);
      grows = parts.length ? parts[parts.length - 1] !== "" : grows;
      if (parts.length && parts[parts.length - 1] === "") parts.pop();
      for (const part of parts) lines.push(part);
    }
    end = upto;
    size = Math.max(size, end);
    shorten();
    if (down) bottom(); else repaint();
  }

  function shorten() {
    if (lines.length <= KEPT) return;
    const mark = marks.find((each) => each.whole && each.line >= lines.length - KEPT + CHUNK_MAX);
    if (!mark) return;
    const gone = mark.line;
    lines = lines.slice(gone);
    marks = marks.filter((each) => each.line >= gone).map((each) => ({ ...each, line: each.line - gone }));
    begin = mark.at;
    marked -= gone;
    log.scrollTop -= gone * high;
  }

  function prepend(part) {
    const parts = part.text.split("\n");
    if (parts[parts.length - 1] === "") parts.pop();
    lines = parts.concat(lines);
    marks = [{ line: 0, at: part.begin, whole: true }, ...marks.map((each) => ({ ...each, line: each.line + parts.length }))];
    begin = part.begin;
    if (marked >= 0) marked += parts.length;
    space.style.height = `${lines.length * high}px`;
    log.scrollTop += parts.length * high;
    repaint();
  }

  function set(part) {
    lines = [];
    marks = [];
    grows = false;
    marked = -1;
    begin = part.begin;
    end = part.begin;
    append(part.text, part.end);
  }

  const ask = async (place, words) => {
    const answer = await fetch(`${src}${place}?attempt=${attempt}${words}`, { headers: { accept: "application/json" } });
    if (!answer.ok) throw new Error(String(answer.status));
    return answer.json();
  };

  async function more() {  // near an end of what is loaded
    if (asking || !lines.length) return;
    const above = log.scrollTop < 400 && begin > 0, below = !open && !timer && atBottom() && end < size;
    if (!above && !below) return;
    asking = true;
    try {
      const part = await ask(".json", above ? `&end=${begin}` : `&begin=${end}`);
      if (above) prepend(part); else append(part.text, part.end);
      if (!above && end >= size) listen();
    } catch { /* the banner says why */ }
    asking = false;
  }

  // --- live ---
  function close() {
    generation += 1;
    open?.close();
    open = null;
    clearTimeout(timer);
    timer = 0;
    release?.();
    release = null;
  }

  function stream(mine) {
    open = new EventSource(`${src}/live?attempt=${attempt}&begin=${end}`);
    open.onmessage = (event) => { if (mine === generation) append(JSON.parse(event.data), Number(event.lastEventId)); };
    open.addEventListener("end", close);
  }

  async function poll(mine) {
    try {
      const part = await ask(".json", `&begin=${end}`);
      if (mine !== generation) return;
      append(part.text, part.end);
      if (!part.text && live().dataset.final) { timer = 0; return; }
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
    lines = [];
    size = 0;
    paint();
    if (!attempt) return;
    try {
      const part = await ask(".json", "");
      if (mine !== generation) return;
      size = part.end;
      set(part);
      bottom();
    } catch { timer = setTimeout(() => show(number), 1000); return; }
    listen();
  }

  async function wake() {  // after a long sleep, what was missed is not read line by line
    const mine = generation;
    try {
      const part = await ask(".json", "");
      if (mine !== generation) return;
      if (part.begin > end + FAR) { show(attempt); return; }
    } catch { /* away: the stream asks again */ }
    if (mine === generation && end >= size) listen();
  }

  // --- search ---
  async function find(text, back, at) {
    said.textContent = "";
    try {
      const answer = await ask("/find.json", `&text=${encodeURIComponent(text)}&at=${at}${back ? "&back=1" : ""}`);
      if (!answer.found) { said.textContent = answer.cut ? said.dataset.cut : said.dataset.none; return; }
      follow.checked = false;
      close();
      size = Math.max(size, end);
      set(answer.found);
      marked = answer.line;
      hit = { text, at: answer.at };
      space.style.height = `${lines.length * high}px`;
      log.scrollTop = Math.max(0, marked * high - log.clientHeight / 2);
      paint();
      if (end >= size) listen();
    } catch { /* the banner says why */ }
  }

  search.addEventListener("submit", (event) => {
    event.preventDefault();
    const text = search.elements.text.value, back = event.submitter?.value !== "on";
    if (!text) return;
    const again = hit && hit.text === text;
    find(text, back, again ? (back ? hit.at : hit.at + 1) : back ? Math.max(size, end) : 0);
  });
  document.getElementById("log-error").addEventListener("click", () => find("", true, hit && hit.text === "" && marked >= 0 ? hit.at : Math.max(size, end)));
  follow.addEventListener("change", () => { if (follow.checked) { hit = null; show(attempt); } });
  log.addEventListener("scroll", () => { repaint(); more(); });
  pick.addEventListener("change", () => { hit = null; show(Number(pick.value)); });
  document.addEventListener("visibilitychange", () => { if (document.hidden) close(); else wake(); });
  document.addEventListener("htmx:after:swap", () => {  // a new attempt has begun: its log is shown
    const now = Number(live().dataset.attempt);
    if (now <= attempt) return;
    const newest = Number(pick.value) === attempt;
    if (![...pick.options].some((each) => Number(each.value) === now)) pick.add(new Option(now));
    pick.closest("label").hidden = now < 2;
    if (newest) { pick.value = String(now); show(now); }
  });
  new ResizeObserver(() => {
    const probe = document.createElement("span");
    probe.textContent = "x\n";
    view.append(probe);
    high = Math.max(12, probe.getBoundingClientRect().height || high);
    if (follow.checked && marked < 0) bottom(); else repaint();
  }).observe(log);
  show(attempt);
})();
