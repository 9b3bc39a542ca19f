// What the pages need beside htmx: polls only while somebody looks, says that the server is away, asks before a deletion.
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
})();
