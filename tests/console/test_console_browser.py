"""The console in a real Chromium: a sweep, a comparison, the best run, its log and picture, a killed server, stop and start again."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from benchmarks.ground import Ground
from console_place import EVIL, TRAIN, WAITS, start_console

WIDTHS = (390, 1280, 2560)
OPTIONS = "--no-sandbox --disable-gpu --disable-background-networking --disable-component-update --disable-sync".split()
WAIT_MS = 60_000
CUT = """() => [...document.querySelectorAll("body *")].filter((each) => {
  const box = each.getBoundingClientRect();
  return box.width && box.right > innerWidth + 1 && !each.closest(".wide, .skip, .unseen, .text");
}).map((each) => `${each.tagName}.${each.className}`)"""

AXE = Path(__file__).with_name("axe.min.js")  # axe-core 4.12.1, Mozilla Public License 2.0, as its authors ship it
AXE_SHA256 = "84494fec757e4710dc751c8d7a636e457f4532f08f85c86dc9070133fbff53bc"
SERIOUS = """(rules) => axe.run(document, {resultTypes: ["violations"], ...(rules ? {runOnly: rules} : {})})
  .then((found) => found.violations.filter((each) => ["serious", "critical"].includes(each.impact))
  .map((each) => `${each.id}: ${each.nodes[0].html.slice(0, 200)}`))"""


@pytest.fixture
def chromium() -> Iterator[object]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as started:
        browser = started.chromium.launch(executable_path=shutil.which("chromium"), args=OPTIONS)
        yield browser
        browser.close()


BURST = """
import pathlib, time
print("before", flush=True)
while not pathlib.Path("go").exists():
    time.sleep(0.1)
for n in range(40_000):
    print(f"line {n} " + "." * 60)
print("the very last line", flush=True)
time.sleep(600)
"""
DRAWS = """
import pathlib, time
from matplotlib.figure import Figure
for n in range(1, 4):
    while n == 3 and not pathlib.Path("go").exists():
        time.sleep(0.1)
    figure = Figure(figsize=(n, 1))
    figure.subplots().plot([1, n])
    figure.savefig("<b>.png", dpi=100)
time.sleep(600)
"""
HIDE = """(hidden) => {
  Object.defineProperty(document, "hidden", {value: hidden, configurable: true});
  document.dispatchEvent(new Event("visibilitychange"));
}"""


@pytest.mark.real("chromium")
def test_a_tab_that_nobody_looks_at_asks_nothing_and_wakes_at_the_end_of_the_log(ground: Ground, chromium):
    from playwright.sync_api import expect

    ground.script("burst.py", BURST)
    run = ground.detach("--name", "burst", "--", "python", "burst.py")
    _, reader = start_console(ground)
    page = chromium.new_page()
    page.set_default_timeout(WAIT_MS)
    page.goto(reader.url)
    page.goto(f"http://{reader.host}/runs/burst")
    expect(page.locator("#log")).to_contain_text("before", timeout=WAIT_MS)
    page.evaluate(HIDE, True)
    page.wait_for_timeout(1000)  # what was on its way
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    ground.script("go", "")
    ground.until_log(run["id"], b"the very last line", timeout_s=60)
    page.wait_for_timeout(2500)
    assert asked == []
    page.evaluate(HIDE, False)
    expect(page.locator("#log")).to_contain_text("the very last line", timeout=WAIT_MS)
    assert int(page.locator("#log").get_attribute("data-lines")) < 5000, "a part, not all that was missed"
    assert page.locator("#log span").count() < 300, "only what is in sight is in the page"
    page.locator("#log").evaluate("(log) => { log.scrollTop = 0; }")
    page.wait_for_function("() => Number(document.querySelector('#log').dataset.lines) > 1500")
    ground.stoker("rm", "--force", "--yes", "burst").ok()
    expect(page.locator("#away")).to_have_text("This page or run no longer exists.", timeout=WAIT_MS)


@pytest.mark.real("chromium")
def test_captured_pictures_are_shown_by_name_and_step(ground: Ground, chromium):
    from playwright.sync_api import expect

    ground.script("draws.py", DRAWS)
    run = ground.detach("--name", "draws", "--", "python", "draws.py")
    _, reader = start_console(ground)
    page = chromium.new_page(viewport={"width": 1280, "height": 900}, locale="en-US")
    page.set_default_timeout(WAIT_MS)
    page.goto(reader.url)
    page.goto(f"http://{reader.host}/runs/draws")
    slider, picture = page.locator(".shot input"), page.locator(".shot img")

    def wide() -> int:
        return picture.evaluate("(image) => image.decode().then(() => image.naturalWidth)")
    expect(slider).to_have_attribute("max", "1", timeout=WAIT_MS)
    expect(page.locator(".shot h3")).to_have_text("<b>")
    assert picture.get_attribute("loading") == "lazy"
    picture.scroll_into_view_if_needed()
    assert wide() == 200, "the newest"
    slider.press("Home")
    assert wide() == 100
    ground.script("go", "")
    expect(slider).to_have_attribute("max", "2", timeout=WAIT_MS)
    assert wide() == 100, "the one that is looked at stays"
    slider.press("End")
    assert wide() == 300
    expect(page.locator(".shot output")).to_have_text("picture 3")

    def told() -> list[dict]:
        return page.request.get(f"http://{reader.host}/runs/draws/pictures.json").json()["pictures"]
    pictures = told()
    assert [(each["name"], each["source"], [step for step, _ in each["steps"]]) for each in pictures] == [("<b>", "matplotlib", [1, 2, 3])]
    ground.attempt_file(run["id"], 1, f"hooks/{pictures[0]['steps'][0][1].split('hooks/')[1]}").unlink()
    assert len(told()[0]["steps"]) == 2, "the oldest made room"


@pytest.mark.real("chromium")
def test_a_sweep_is_compared_and_a_run_is_stopped_and_started_again(ground: Ground, chromium):
    from playwright.sync_api import expect

    ground.script("train.py", TRAIN)
    ground.script("waits.py", WAITS)
    sweep = ground.stoker("sweep", "--json", "--param", "lr=3,2", "--", "python", "train.py", "8").json()["runs"]
    ground.detach("--name", "active", "--", "python", "waits.py")
    ground.stoker("note", "active", EVIL).ok()
    ground.stoker("wait", "@sweep-1").ok()
    _, reader = start_console(ground)

    context = chromium.new_context(viewport={"width": 1280, "height": 900}, locale="en-US")
    context.set_default_timeout(WAIT_MS)
    page, wrong = context.new_page(), []
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("console", lambda said: wrong.append(said.text) if "Content Security Policy" in said.text else None)
    page.on("dialog", lambda dialog: dialog.accept() if dialog.type == "confirm" else wrong.append(dialog.message))

    page.goto(reader.url)
    for run in sweep:
        page.get_by_role("checkbox", name=f"Compare {run['name']}").check()
    page.get_by_role("button", name="Compare the chosen runs").click()
    page.get_by_role("link", name="val_loss best").click()
    expect(page.locator("#charts .u-over")).to_have_count(1)
    best = page.locator("tbody tr").first
    expect(best).to_contain_text(sweep[1]["name"])
    best.get_by_role("link").click()
    expect(page.locator("#log")).to_contain_text(EVIL)
    expect(page.locator("#charts .u-over")).to_have_count(1)
    page.get_by_role("searchbox", name="Find in the log").fill("epoch 3/")
    page.get_by_role("button", name="Earlier").click()
    expect(page.locator("#log .found")).to_contain_text("Epoch 3/8")
    page.get_by_role("button", name="Jump to error").click()
    expect(page.locator("#log .found")).to_contain_text(EVIL)
    page.get_by_role("link", name="dot.png", exact=True).click()
    assert page.locator("img.picture").evaluate("(image) => image.decode().then(() => image.naturalWidth)") == 1

    page.goto(f"http://{reader.host}/runs/active")
    expect(page.locator("#log")).to_contain_text("one more\none more\n")
    other_tab = context.new_page()
    other_tab.goto(f"http://{reader.host}/runs/active")
    before = page.locator("#log").get_attribute("data-lines")
    page.wait_for_function("(before) => Number(document.querySelector('#log').dataset.lines) > Number(before)", arg=before)
    ground.kill_server()
    expect(page.locator("#away")).to_be_visible(timeout=WAIT_MS)
    ground.stoker("ps").ok()
    expect(page.locator("#away")).to_be_hidden(timeout=WAIT_MS)
    page.get_by_role("button", name="Stop", exact=True).click()
    expect(page.locator("h1 .state")).to_have_text("stopped", timeout=WAIT_MS)
    expect(other_tab.locator("h1 .state")).to_have_text("stopped", timeout=WAIT_MS)
    other_tab.close()
    page.get_by_role("button", name="Start again").click()
    expect(page.locator("h1 .state")).to_have_text("running", timeout=WAIT_MS)
    expect(page.locator("#log-attempt")).to_have_value("2", timeout=WAIT_MS)
    expect(page.locator("#log")).to_contain_text("first line", timeout=WAIT_MS)
    assert wrong == []

    other = chromium.new_context(locale="zh-CN", storage_state=context.storage_state(), bypass_csp=True)
    page = other.new_page()
    done = f"/runs/{sweep[0]['id']}"
    for path in ("/runs", "/runs/active", done, f"{done}/code", f"{done}/preview?path=table.csv", "/compare?tag=sweep-1", "/sweeps",
                 "/sweeps/new", "/machines", "/machines/local", "/reports", "/runs/nothing", "/runs?grep=nothing"):
        page.goto(f"http://{reader.host}{path}")
        if page.locator("#charts").count():
            page.locator("#charts .u-over, #charts .why").first.wait_for()
        assert page.locator("html").get_attribute("lang") == "zh"
        for width, scheme in zip(WIDTHS, ("dark", "light", "dark"), strict=True):
            page.set_viewport_size({"width": width, "height": 900})
            page.emulate_media(color_scheme=scheme)
            page.wait_for_function(f"() => document.documentElement.scrollWidth <= {width} && ({CUT})().length === 0")
        page.evaluate(AXE.read_text("utf-8"))
        assert page.evaluate(SERIOUS, ["color-contrast"]) == [], f"{path}, dark"
        page.emulate_media(color_scheme="light")
        assert page.evaluate(SERIOUS, None) == [], path


def test_axe_is_as_its_authors_ship_it():
    assert hashlib.sha256(AXE.read_bytes()).hexdigest() == AXE_SHA256
