"""Tries the console as a person would, in a real Chromium, and makes pictures of each step: `python docs/console.py [--axe FILE]`.

The story: begin a sweep of six runs, watch it, compare, open the best, see its log and picture, kill the server, stop a run, start it
again. Then every page at each width, light and dark, in each language. The pictures are in build/console/. What overlaps the window or
breaks is printed, and with the file of axe-core (axe.min.js) also what it finds serious. Exit code 1 if anything was found.
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

PLACE = REPO / "build" / "console"
WIDTHS = (390, 1280, 2560)
OPTIONS = "--no-sandbox --disable-gpu --disable-background-networking --disable-component-update --disable-sync".split()
WAIT_MS = 60_000
TRAIN = '''
import base64, math, random, struct, sys, time, zlib
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
open("weights.png", "wb").write(png(96, 96, lambda x, y: 128 + 127 * math.sin(20 * x * y + lr)))
open("epochs.csv", "w").write("epoch,loss\\n" + "\\n".join(f"{n},{2 / n:.3f}" for n in range(1, 13)))
'''
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
  .filter((each) => ["serious", "critical"].includes(each.impact)).map((each) => `${each.id}: ${each.nodes[0].html.slice(0, 160)}`))"""
PAGES = {"runs": "/runs", "run": "/runs/BEST", "live": "/runs/server", "code": "/runs/BEST/code",
         "picture": "/runs/BEST/preview?path=weights.png",
         "table": "/runs/BEST/preview?path=epochs.csv", "compare": "/compare?tag=lr", "sweeps": "/sweeps", "new-sweep": "/sweeps/new",
         "machines": "/machines", "reports": "/reports", "none": "/runs?grep=nothing"}


class Story:
    """One browser on one console. `found` is what is wrong."""

    def __init__(self, ground: Ground, browser: object, axe: str) -> None:
        self.ground, self.browser, self.axe = ground, browser, axe
        self.found: list[str] = []
        console = ground.start_stoker("ui", "--json", stdout=subprocess.PIPE)
        self.link = json.loads(console.stdout.readline())["url"]
        self.address = "/".join(self.link.split("/")[:3])
        self.shots = 0

    def open(self, state: dict | None = None, **options: object) -> object:
        """A page of a new window."""
        context = self.browser.new_context(bypass_csp=bool(self.axe), storage_state=state, **options)
        context.set_default_timeout(WAIT_MS)
        page = context.new_page()
        page.on("pageerror", lambda error: self.found.append(f"{page.url}: {error}"))
        page.on("dialog", lambda dialog: dialog.accept())
        return page

    def shoot(self, page: object, name: str, *, whole: bool = True) -> None:
        """A picture, and a look for what is cut."""
        page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
        page.screenshot(path=PLACE / f"{name}.png", full_page=whole)
        self.shots += 1
        self.found += [f"{name}: {each} is cut" for each in page.evaluate(CUT)]
        if self.axe:
            page.evaluate(self.axe)
            self.found += [f"{name}: {each}" for each in page.evaluate(AXE)]

    def tell(self) -> dict:
        """The story, at 1280 pixels. The cookies of the browser."""
        from playwright.sync_api import expect

        page = self.open(viewport={"width": 1280, "height": 900}, locale="en-US")
        page.goto(self.link)
        page.goto(f"{self.address}/sweeps/new")
        page.get_by_label("Folder").fill(str(self.ground.work))
        page.get_by_label("Command").fill("python train.py")
        page.get_by_label("Parameters").fill("lr=0.3,0.2,0.1,0.05,0.03,0.01")
        page.get_by_label("Name").fill("lr")
        page.get_by_label("At the same time").fill("2")
        self.shoot(page, "story-1-sweep")
        page.get_by_role("button", name="Begin the sweep").click()
        expect(page.locator("tbody tr")).to_have_count(6)
        page.locator(".state.running").first.wait_for()
        page.wait_for_timeout(1500)
        self.shoot(page, "story-2-watch")
        expect(page.locator(".state.done")).to_have_count(6, timeout=180_000)
        for box in page.get_by_role("checkbox").all():
            box.check()
        page.get_by_role("button", name="Compare the chosen runs").click()
        page.get_by_role("link", name="val_loss best").click()
        page.locator("#charts .u-over").first.wait_for()
        self.shoot(page, "story-3-compare")
        best = page.locator("tbody tr").first.get_by_role("link")
        self.best = best.text_content()
        best.click()
        expect(page.locator("#log")).to_contain_text("Epoch 12/12")
        page.locator("#charts .u-over").first.wait_for()
        page.locator(".compact .u-over").first.wait_for()
        self.shoot(page, "story-4-best")
        page.get_by_role("searchbox", name="Find in the log").fill("Epoch 3/")
        page.get_by_role("button", name="Earlier").click()
        expect(page.locator("#log .found")).to_contain_text("Epoch 3/12")
        page.get_by_role("link", name="weights.png", exact=True).click()
        self.shoot(page, "story-5-picture")
        page.goto(f"{self.address}/runs/server")
        expect(page.locator("#log")).to_contain_text("step")
        self.ground.kill_server()
        expect(page.locator("#away")).to_be_visible()
        self.shoot(page, "story-6-away")
        self.ground.stoker("ps").ok()
        expect(page.locator("#away")).to_be_hidden()
        page.get_by_role("button", name="Stop", exact=True).click()
        expect(page.locator("h1 .state")).to_have_text("stopped")
        page.get_by_role("button", name="Start again").click()
        expect(page.locator("h1 .state")).to_have_text("running")
        expect(page.locator("#log")).to_contain_text("step 3")
        self.shoot(page, "story-7-again")
        return page.context.storage_state()

    def look_at_all(self, state: dict) -> None:
        """Every page at each width, light and dark, in each language."""
        for language, locale in (("en", "en-US"), ("zh", "zh-CN")):
            page = self.open(state, locale=locale)
            for name, path in PAGES.items():
                page.goto(self.address + path.replace("BEST", self.best))
                if page.locator("#charts").count():
                    page.locator("#charts .u-over").first.wait_for()
                for width, scheme in ((w, s) for w in WIDTHS for s in ("light", "dark")):
                    page.set_viewport_size({"width": width, "height": 900})
                    page.emulate_media(color_scheme=scheme)
                    page.wait_for_timeout(300)
                    self.shoot(page, f"{name}-{width}-{scheme}-{language}")
            page.context.close()


def main() -> int:
    from playwright.sync_api import sync_playwright

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--axe", type=Path, help="axe.min.js of axe-core")
    asked = parser.parse_args()
    PLACE.mkdir(parents=True, exist_ok=True)
    ground = Ground()
    try:
        ground.script("train.py", TRAIN)
        ground.script("serve.py", SERVE)
        ground.detach("--name", "server", "--", "python", "serve.py")
        with sync_playwright() as started:
            browser = started.chromium.launch(executable_path=shutil.which("chromium"), args=OPTIONS)
            story = Story(ground, browser, asked.axe.read_text("utf-8") if asked.axe else "")
            story.look_at_all(story.tell())
            browser.close()
    finally:
        left = ground.close()
    found = list(dict.fromkeys([*story.found, *(f"left behind: {each}" for each in left)]))
    print("\n".join([*found, f"{story.shots} pictures in {PLACE}; {len(found)} findings"]))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
