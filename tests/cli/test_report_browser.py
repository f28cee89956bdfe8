"""The report's page in a real browser: it draws, answers, fits a phone and asks for nothing."""

import math
import re
import shutil

import pytest
from cli.report_page import Watched
from cli.report_runs import run

from fcco_lab.report import write_report
from fcco_lab.runs import AXES

BROWSER = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
pytestmark = pytest.mark.skipif(BROWSER is None, reason="no Chromium to open the page in")

ARGUMENTS = [
    *("--no-sandbox", "--disable-gpu", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync", "--no-first-run"),
]
TITLES = {"objective": "exact training objective", "auc": "test AUC", "ap": "test AP"}


@pytest.fixture(scope="module")
def browser():
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=BROWSER, args=ARGUMENTS)
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    contenders = (("sox", "plain", 0.8), ("msvrm-v2", "normalized", 0.6), ("msvrm-v3", "adam", 0.5))
    records = []
    for data, ease in (("usps", 1.0), ("mnist", 1.1)):
        for cost, (method, update, rate) in enumerate(contenders, 2):
            for seed in (0, 1):
                values = [(rate * ease + seed / 50) ** k for k in range(12)]
                lost = (data, method, seed) == ("mnist", "msvrm-v3", 1)
                status = "diverged" if lost else "finished"
                records.append(
                    run(data, method, update, seed=seed, values=values, cost=cost, status=status)
                )
    path = tmp_path_factory.mktemp("report") / "page.html"
    write_report(records, path, title="Three contenders")
    return path.as_uri()


@pytest.fixture(scope="module")
def desk(browser, address):
    """Shared, as it takes seconds to load; a test presses what no other relies on."""
    size = {"width": 1280, "height": 900}
    return Watched(browser, address, viewport=size, color_scheme="light")


@pytest.fixture
def page(desk, address):
    yield desk.page
    desk.check(address)


UNITS = {"k": 1e3, "M": 1e6, "%": 0.01}


def number(text):
    """A label of a tick, read as a person would."""
    return float(text[:-1]) * UNITS[text[-1]] if text[-1] in UNITS else float(text)


SCALES = {
    "linear": (lambda v: v, lambda v: v),
    "log": (math.log10, lambda v: 10**v),
    "toward 1": (lambda v: math.log10(1 - v), lambda v: 1 - 10**v),
}


def drawn(plot, *, scale="linear"):
    """Titles, and the end of each line in the numbers that the ticks of the axes show."""
    seen = plot.locator(".canvas").evaluate(
        """canvas => {
            const all = (place, what) => [...canvas.querySelectorAll(place)].map(what);
            const ticks = all(".grid text[text-anchor]:not([class])", text => [
                text.getAttribute("text-anchor"), text.textContent,
                Number(text.getAttribute("x")), Number(text.getAttribute("y")) - 4]);
            return {
                x: canvas.querySelector(".xtitle").textContent,
                y: canvas.querySelector(".ytitle").textContent,
                ticks, lines: all(".line", line => line.getAttribute("d")),
            };
        }"""
    )
    across = [(number(text), x) for anchor, text, x, _ in seen["ticks"] if anchor == "middle"]
    up = [(number(text), y) for anchor, text, _, y in seen["ticks"] if anchor == "end"]
    assert min(len(across), len(up)) >= 3, "enough ticks to read the figure"
    ends = []
    for path in seen["lines"]:
        x, y = (float(word) for word in re.split("[ML]", path)[-1].split(","))
        ends.append((read_off(across, x, "linear"), read_off(up, y, scale)))
    return seen | {"ends": ends}


def read_off(ticks, pixel, scale):
    """The value at a pixel, on the line through the first and the last tick."""
    forth, back = SCALES[scale]
    values = [forth(value) for value, _ in ticks]
    pixels = [place for _, place in ticks]
    share = (pixel - pixels[0]) / (pixels[-1] - pixels[0])
    value = values[0] + share * (values[-1] - values[0])
    return back(value)


def test_plots_are_drawn_in_light_and_dark(page, tmp_path):
    pictures, colours = [], []
    for scheme in ("dark", "light"):
        page.emulate_media(color_scheme=scheme)
        plots = page.locator(".plot").all()
        assert len(plots) == 3
        for plot in plots:
            assert plot.locator(".canvas svg").bounding_box()["height"] > 200
            assert plot.locator(".line").count() == 3
        assert plots[0].locator(".band").count() == 3
        title = plots[0].locator(".xtitle")
        colours.append(title.evaluate("title => getComputedStyle(title).fill"))
        pictures.append(page.screenshot(path=tmp_path / f"{scheme}.png", full_page=True))
    assert min(map(len, pictures)) > 50_000
    assert pictures[0] != pictures[1]
    assert colours == ["rgb(163, 173, 185)", "rgb(87, 96, 106)"]  # --quiet of either scheme


def test_lines_can_be_told_apart_without_colours(page):
    lines = page.locator(".plot").first.locator(".legend button svg")
    looks = lines.evaluate_all(
        """all => all.map(svg => [svg.querySelector("line").getAttribute("stroke-dasharray"),
                                  svg.querySelector("path")?.getAttribute("d")].join())"""
    )
    assert len(set(looks)) == len(looks) == 3


def test_every_axis_button_changes_its_axis(page):
    plot = page.locator(".plot").first
    ends = {"samples": 11 * 640, "queries": 11 * 640 * 3, "seconds": 11 * 0.5 * 2}  # of SOX
    for y, title in TITLES.items():
        for x in AXES:
            for key in (x, y):
                plot.locator(f"button[data-key={key}]").click()
            seen = drawn(plot, scale="log" if y == "objective" else "toward 1")
            assert (seen["x"], seen["y"]) == (AXES[x], title)
            value = (0.8**11 + 0.82**11) / 2
            expected = {"objective": value, "auc": 1 - value / 2, "ap": 1 - value * 0.9}
            assert seen["ends"][0] == pytest.approx((ends[x], expected[y]), rel=1e-3)
            assert plot.locator(".buttons [aria-pressed=true]").count() == 2


def test_profile_buttons_and_legend(page):
    profiles, curves = page.locator(".plot.profiles"), page.locator(".plot").first
    profiles.locator("button[data-key=seconds]").click()
    assert profiles.locator(".xtitle").text_content() == "times the fewest CPU seconds"
    name = curves.locator(".legend button", has_text="AdaMSVRM-v2")
    name.click()
    assert curves.locator(".line").count() == 2
    assert name.get_attribute("aria-pressed") == "false"
    name.click()
    assert curves.locator(".line").count() == 3


def test_the_pointer_reads_a_value_and_zooms(page):
    plot = page.locator(".plot").first
    plot.locator("button[data-key=samples]").click()
    plot.locator("button[data-key=auc]").click()
    before = drawn(plot)
    box = plot.locator(".canvas").bounding_box()
    last = plot.locator(".mark").last.bounding_box()
    page.mouse.move(last["x"] + last["width"] / 2 - 3, last["y"] + last["height"] / 2)
    tip = plot.locator(".tip").text_content()
    value = 1 - (0.5**11 + 0.52**11) / 4
    spread = f"{(0.52**11 - 0.5**11) / 2 / 2**0.5:.1e}".replace("e-0", "e-")
    assert tip == f"MSVRM-v3 Adam{value:.4g} ± {spread} at 7.04k"
    page.mouse.move(box["x"] + 200, box["y"] + 100)
    page.mouse.down()
    page.mouse.move(box["x"] + 400, box["y"] + 200)
    page.mouse.up()
    assert plot.locator(".grid text").all_text_contents() != [t[1] for t in before["ticks"]]
    plot.locator(".canvas").dblclick(position={"x": 300, "y": 150})
    assert drawn(plot)["ticks"] == before["ticks"]


def test_a_hidden_page_is_drawn_when_it_is_shown(page):
    """As is one that is loaded before the window has its size."""
    from playwright.sync_api import expect

    lines = page.locator(".plot").first.locator(".line")
    page.evaluate("document.body.hidden = true")
    expect(lines).to_have_count(0)
    page.evaluate("document.body.hidden = false")
    expect(lines).to_have_count(3)


def test_a_heading_sorts_and_what_is_missing_stays_last(page):
    table = page.locator("table.results").first
    names = table.locator("tbody th")
    before = names.all_inner_texts()
    assert before == ["SOX", "AdaMSVRM-v2", "MSVRM-v3 Adam"]
    table.locator("tbody tr").nth(1).locator("td").nth(1).evaluate("cell => cell.dataset.sort = ''")
    heading = table.get_by_role("button", name="objective")
    heading.click()
    assert names.all_inner_texts() == ["MSVRM-v3 Adam", "SOX", "AdaMSVRM-v2"]
    assert heading.locator("..").get_attribute("aria-sort") == "ascending"
    heading.click()
    assert names.all_inner_texts() == ["SOX", "MSVRM-v3 Adam", "AdaMSVRM-v2"]
    table.get_by_role("button", name="contender").click()
    assert names.all_inner_texts() == sorted(before)


def test_a_phone_needs_no_sideways_scroll(browser, address):
    size = {"width": 390, "height": 844}
    phone = Watched(browser, address, viewport=size, has_touch=True, is_mobile=True)
    phone.page.locator("summary").click()
    assert phone.page.evaluate("document.documentElement.scrollWidth") == 390
    box = phone.page.locator(".box").first.evaluate("box => [box.scrollWidth, box.clientWidth]")
    assert box[0] > box[1]  # the table scrolls in its own
    assert phone.page.locator(".canvas svg").first.bounding_box()["width"] <= 390
    phone.check(address)
