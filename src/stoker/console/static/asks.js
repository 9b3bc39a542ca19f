// Asks for what a part of a page shows, again at each change while somebody looks: never twice at once, and slow answers more rarely.
"use strict";

// address() and least() are asked each time: where the answer is, and the pause in ms that there is at least. take(answer) shows it.
function asksAgain(address, least, take) {
  let busy = false, again = false;

  async function load() {
    if (document.hidden) return;
    if (busy) { again = true; return; }
    busy = true;
    const began = performance.now();
    try {
      const answer = await fetch(address(), { headers: { accept: "application/json" } });
      if (answer.ok) take(await answer.json());
    } catch { /* the page says that the console is away, and asks again */ }
    setTimeout(() => { busy = false; if (again) { again = false; load(); } }, Math.max(least(), 5 * (performance.now() - began)));
  }

  document.addEventListener("stoker:key", load);
  document.addEventListener("visibilitychange", load);
  return load;
}
