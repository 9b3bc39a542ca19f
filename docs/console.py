"""Tries the console as a person would, in a real Chromium, and makes pictures of each step:
`python docs/console.py`.

The story: begin a sweep of six runs, watch it, compare, open the best, see its log and picture, kill the
server, stop a run, start it again; each step at each width, light and dark, in each language.
Then every other page so. The pictures are in build/console/.
What overlaps the window or other text, or breaks, is printed, and what axe-core finds serious.
Exit code 1 if anything was found.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
from pathlib import Path

REPO = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(REPO))

from benchmarks.ground import Ground  # noqa: E402

from stoker.console.words import catalogue  # noqa: E402

PLACE = REPO / "build" / "console"
AXE_CORE = REPO / "tests" / "console" / "axe.min.js"
WIDTHS = (390, 1280, 2560)
OPTIONS = "--no-sandbox --disable-gpu --disable-background-networking --disable-component-update --disable-sync".split()  # noqa: E501
WAIT_MS = 60_000
TRAIN = """
import math, random, struct, sys, time, zlib
from matplotlib.figure import Figure
lr = float(sys.argv[sys.argv.index("--lr") + 1])
random.seed(lr)

def png(width, height, value):
    rows = b"".join(b"\\0" + bytes(min(255, int(value(x / width, y / height))) for x in range(width)) for y in range(height))
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return b"\\x89PNG\\r\\n\\x1a\\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")

print(f"training with lr {lr}", flush=True)
for epoch in range(1, 13):
    time.sleep(0.2)
    loss = 2.3 * math.exp(-epoch * 6 * lr) + 0.1 + 30 * lr * lr + random.random() * 0.05
    print(f"Epoch {epoch}/12 loss: {loss:.4f} val_loss: {loss * 1.08 + 0.02:.4f} acc: {100 - 20 * loss:.2f}%", flush=True)
    if epoch % 4 == 0:
        figure = Figure(figsize=(4, 3))
        figure.subplots().imshow([[math.sin(x * y / 40 / epoch + lr) for x in range(28)] for y in range(28)])
        figure.savefig("features.png", dpi=80)
open("weights.png", "wb").write(png(96, 96, lambda x, y: 128 + 127 * math.sin(20 * x * y + lr)))
open("epochs.csv", "w").write("epoch,loss\\n" + "\\n".join(f"{n},{2 / n:.3f}" for n in range(1, 13)))
"""  # noqa: E501
SERVE = '''
import itertools, signal, time
signal.signal(signal.SIGINT, signal.SIG_DFL)
for step in itertools.count(1):
    print(f"step {step} loss: {1 / step ** 0.5:.4f}", flush=True)
    time.sleep(0.5)
'''
CUT = """() => [...document.querySelectorAll("body *")].filter((each) => {
  const box = each.getBoundingClientRect();
  return box.width && box.right > innerWidth + 1 && !each.closest(".wide, .skip, .unseen, .text");
}).map((each) => `${each.tagName}.${each.className}`).slice(0, 5)"""
AXE = """() => axe.run(document, {resultTypes: ["violations"]}).then((found) => found.violations
  .filter((each) => ["serious", "critical"].includes(each.impact)).map((each) => `${each.id}: ${each.nodes[0].html.slice(0, 160)}`))"""  # noqa: E501
OVER = """() => {
  const seen = [], walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT), range = document.createRange();
  for (let node; seen.length < 1500 && (node = walk.nextNode());) {
    if (!node.data.trim() || node.parentElement.closest(".text, .skip, .unseen, .wide, [hidden], svg, option, textarea, .u-over")) continue;
    range.selectNodeContents(node);
    for (const box of range.getClientRects()) if (box.width > 1 && box.height > 1) seen.push([box, node.data.trim().slice(0, 30)]);
  }
  return seen.flatMap(([a, text], i) => seen.slice(i + 1)
    .filter(([b]) => Math.min(a.right, b.right) - Math.max(a.left, b.left) > 2 && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 5)
    .map(([, other]) => `"${text}" on "${other}"`)).slice(0, 5);
}"""  # noqa: E501
SHIFTS = """() => new Promise((done) => {
  let sum = 0;
  new PerformanceObserver((list) => list.getEntries().forEach((each) => { sum += each.hadRecentInput ? 0 : each.value; }))
    .observe({type: "layout-shift"});
  setTimeout(() => done(sum), 4000);
})"""  # noqa: E501
SHIFT_MAX = 0.02  # of what is seen, in four seconds without a hand on it
PAGES = {
    "runs": "/runs",
    "code": "/runs/BEST/code",
    "table": "/runs/BEST/preview?path=epochs.csv",
    "sweeps": "/sweeps",
    "machines": "/machines",
    "machine": "/machines/local",
    "reports": "/reports",
    "none": "/runs?grep=nothing",
    "no-run": "/runs/nothing",
}


class Story:
    """One browser on one console. `found` is what is wrong."""

    def __init__(self, ground: Ground, browser: object, axe: str) -> None:
        self.ground, self.browser, self.axe = ground, browser, axe
        self.found: list[str] = []
        console = ground.start_stoker("ui", "--json", stdout=subprocess.PIPE)
        self.link = json.loads(console.stdout.readline())["url"]
        self.address = "/".join(self.link.split("/")[:3])
        self.shots = 0

    def open(self, **options: object) -> object:
        """A page of a new window."""
        context = self.browser.new_context(bypass_csp=True, **options)
        context.set_default_timeout(WAIT_MS)
        page = context.new_page()
        page.on("pageerror", lambda error: self.found.append(f"{page.url}: {error}"))
        page.on("dialog", lambda dialog: dialog.accept())
        return page

    def shoot(self, page: object, name: str, language: str) -> None:
        """Pictures at each width, light and dark, and a look for what is cut or on top of each other."""
        for width in WIDTHS:
            for scheme in ("light", "dark"):
                page.set_viewport_size({"width": width, "height": 900})
                page.emulate_media(color_scheme=scheme)
                page.wait_for_timeout(300)
                page.evaluate(
                    "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"
                )
                one = f"{name}-{width}-{scheme}-{language}"
                page.screenshot(path=PLACE / f"{one}.png", full_page=True)
                self.shots += 1
                self.found += [f"{one}: {each} is cut" for each in page.evaluate(CUT)]
                self.found += [f"{one}: {each}" for each in page.evaluate(OVER)]
                if width < WIDTHS[-1]:
                    page.evaluate(self.axe)
                    self.found += [f"{one}: {each}" for each in page.evaluate(AXE)]
        page.set_viewport_size({"width": 1280, "height": 900})
        page.emulate_media(color_scheme="light")

    def tell(self, page: object, language: str) -> str:
        """The story. The name of the best run."""
        from playwright.sync_api import expect

        words = catalogue(language)

        def said(text: str) -> str:
            return words.get(text, text)

        def button(text: str) -> object:
            return page.get_by_role("button", name=said(text), exact=True)
        page.goto(f"{self.address}/sweeps/new")
        for name, value in {
            "folder": str(self.ground.work),
            "command": "python train.py",
            "params": "lr=0.3,0.2,0.1,0.05,0.03,0.01",
            "name": f"lr-{language}",
            "at_once": "2",
        }.items():
            page.locator(f"[name={name}]").fill(value)
        self.shoot(page, "story-1-sweep", language)
        button("Begin the sweep").click()
        expect(page.locator("tbody tr")).to_have_count(6)
        page.locator(".state.running").first.wait_for()
        self.shoot(page, "story-2-watch", language)
        expect(page.locator(".state.done")).to_have_count(6, timeout=300_000)
        for box in page.get_by_role("checkbox").all():
            box.check()
        button("Compare the chosen runs").click()
        page.get_by_role("link", name=f"val_loss {said('best')}").click()
        page.locator("#charts .u-over").first.wait_for()
        self.shoot(page, "story-3-compare", language)
        best = page.locator("tbody tr").first.get_by_role("link")
        chosen = best.text_content()
        best.click()
        expect(page.locator("#log")).to_contain_text("Epoch 12/12")
        page.locator("#charts .u-over").first.wait_for()
        page.locator(".compact .u-over").first.wait_for()
        picture = page.locator(".shot img").first
        picture.scroll_into_view_if_needed()
        picture.evaluate("(image) => image.decode()")
        self.shoot(page, "story-4-best", language)
        page.get_by_role("searchbox", name=said("Find in the log")).fill("Epoch 3/")
        button("Earlier").click()
        expect(page.locator("#log .found")).to_contain_text("Epoch 3/12")
        page.get_by_role("link", name="weights.png", exact=True).click()
        self.shoot(page, "story-5-picture", language)
        page.goto(f"{self.address}/runs/server")
        expect(page.locator("#log")).to_contain_text("step")
        page.locator("#charts .u-over").first.wait_for()
        page.wait_for_timeout(3000)
        shift = page.evaluate(SHIFTS)
        self.found += [f"the page of a run that goes on moves by {shift:.3f}"] if shift > SHIFT_MAX else []
        self.ground.kill_server()
        expect(page.locator("#away")).to_be_visible()
        self.shoot(page, "story-6-away", language)
        self.ground.stoker("ps").ok()
        expect(page.locator("#away")).to_be_hidden()
        button("Stop").click()
        expect(page.locator("h1 .state")).to_have_text(said("stopped"))
        button("Start again").click()
        expect(page.locator("h1 .state")).to_have_text(said("running"))
        expect(page.locator("#log")).to_contain_text("step 3")
        self.shoot(page, "story-7-again", language)
        return chosen

    def look_at_all(self) -> None:
        """The story and every page, in each language."""
        state = None
        for language, locale in (("en", "en-US"), ("zh", "zh-CN")):
            page = self.open(viewport={"width": 1280, "height": 900}, locale=locale, storage_state=state)
            if state is None:
                page.goto(self.link)
                state = page.context.storage_state()
            best = self.tell(page, language)
            for name, path in PAGES.items():
                page.goto(self.address + path.replace("BEST", best))
                self.shoot(page, name, language)
            page.context.close()


def main() -> int:
    from playwright.sync_api import sync_playwright

    parser = argparse.ArgumentParser(description=__doc__)
    parser.parse_args()
    PLACE.mkdir(parents=True, exist_ok=True)
    ground = Ground()
    try:
        ground.script("train.py", TRAIN)
        ground.script("serve.py", SERVE)
        ground.detach("--name", "server", "--", "python", "serve.py")
        with sync_playwright() as started:
            browser = started.chromium.launch(executable_path=shutil.which("chromium"), args=OPTIONS)
            story = Story(ground, browser, AXE_CORE.read_text("utf-8"))
            story.look_at_all()
            browser.close()
    finally:
        left = ground.close()
    found = list(dict.fromkeys([*story.found, *(f"left behind: {each}" for each in left)]))
    print("\n".join([*found, f"{story.shots} pictures in {PLACE}; {len(found)} findings"]))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
