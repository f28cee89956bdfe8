"""The report's page in a real browser: it draws, answers, fits a phone and asks for nothing."""

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


def drawn(plot):
    """What Plotly holds: titles and type of the axes, and the lines without their bands."""
    return plot.locator(".canvas").evaluate(
        """div => ({
            x: div.layout.xaxis.title.text, y: div.layout.yaxis.title.text,
            log: div.layout.yaxis.type === "log",
            lines: div.data.filter((_, i) => i % 2).map(line => [line.x, line.y]),
            visible: div.data.map(trace => trace.visible),
        })"""
    )


def test_plots_are_drawn_in_light_and_dark(page, tmp_path):
    pictures, colours = [], []
    for scheme in ("dark", "light"):
        page.emulate_media(color_scheme=scheme)
        plots = page.locator(".plot").all()
        assert len(plots) == 3
        for plot in plots:
            assert plot.locator("svg.main-svg").first.bounding_box()["height"] > 200
            assert plot.locator(".scatterlayer path.js-line").count() >= 3
        assert plots[0].locator(".scatterlayer path.js-fill").count() == 3
        title = plots[0].locator(".xtitle")
        colours.append(title.evaluate("title => getComputedStyle(title).fill"))
        pictures.append(page.screenshot(path=tmp_path / f"{scheme}.png", full_page=True))
    assert min(map(len, pictures)) > 50_000
    assert pictures[0] != pictures[1]
    assert colours == ["rgb(163, 173, 185)", "rgb(87, 96, 106)"]  # --quiet of either scheme


def test_every_axis_button_changes_its_axis(page):
    plot = page.locator(".plot").first
    ends = {"samples": 11 * 640, "queries": 11 * 640 * 3, "seconds": 11 * 0.5 * 2}  # of SOX
    for y, title in TITLES.items():
        for x in AXES:
            for key in (x, y):
                plot.locator(f"button[data-key={key}]").click()
            seen = drawn(plot)
            assert (seen["x"], seen["y"], seen["log"]) == (AXES[x], title, y == "objective")
            assert seen["lines"][0][0][-1] == pytest.approx(ends[x])
            value = (0.8**11 + 0.82**11) / 2
            expected = {"objective": value, "auc": 1 - value / 2, "ap": 1 - value * 0.9}
            assert seen["lines"][0][1][-1] == pytest.approx(expected[y], rel=1e-5)
            assert plot.locator(".buttons [aria-pressed=true]").count() == 2
            assert plot.locator(".xtitle").text_content() == AXES[x]


def test_profile_buttons_and_legend(page):
    profiles, curves = page.locator(".plot.profiles"), page.locator(".plot").first
    profiles.locator("button[data-key=seconds]").click()
    assert drawn(profiles)["x"] == "times the fewest CPU seconds"
    name = curves.locator(".legend button", has_text="AdaMSVRM-v2")
    name.click()
    assert drawn(curves)["visible"] == [True, True, False, False, True, True]
    assert name.get_attribute("aria-pressed") == "false"
    assert curves.locator(".scatterlayer path.js-line[style*='stroke-width: 2.2']").count() == 2
    name.click()
    assert drawn(curves)["visible"] == [True] * 6


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
    assert phone.page.locator(".canvas svg.main-svg").first.bounding_box()["width"] <= 390
    phone.check(address)
