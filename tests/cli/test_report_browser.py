"""The report's page in a real browser: it opens, sorts, fits a phone and asks for nothing."""

import shutil

import pytest
from cli.report_runs import run

from fcco_lab.report import write_report

BROWSER = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
pytestmark = pytest.mark.skipif(BROWSER is None, reason="no Chromium to open the page in")

ARGUMENTS = [
    *("--no-sandbox", "--disable-gpu", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync", "--no-first-run"),
]


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


@pytest.fixture(params=["light", "dark"])
def page(browser, address, request):
    """Open in a window of its own; in the end it has complained of nothing and loaded nothing."""
    complaints, requests = [], []
    size = {"width": 390, "height": 844}
    page = browser.new_context(viewport=size, color_scheme=request.param).new_page()
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("request", lambda request: requests.append(request.url))
    page.goto(address)
    yield page
    assert not complaints, complaints
    outside = [url for url in requests if not url.startswith("data:")]
    assert outside == [address], outside


def test_pictures_are_shown_and_a_phone_needs_no_sideways_scroll(page):
    widths = page.locator("img").evaluate_all("all => all.map(img => img.naturalWidth)")
    assert widths == [902] * 8  # three quantities of two data sets, and two profiles
    page.locator("summary").click()
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    box = page.locator(".box").first.evaluate("box => [box.scrollWidth, box.clientWidth]")
    assert box[0] > box[1]  # the table scrolls in its own


def test_a_heading_sorts(page):
    table = page.locator("table").first
    names = table.locator("tbody td:nth-child(2)")
    before = names.all_inner_texts()
    assert before == ["SOX", "AdaMSVRM-v2", "MSVRM-v3 Adam"]
    heading = table.locator("th", has_text="queries")
    heading.click()
    assert names.all_inner_texts() == before  # 21.1k, 28.2k, 35.2k
    heading.click()
    assert names.all_inner_texts() == before[::-1]
    table.locator("th", has_text="objective").click()
    assert names.all_inner_texts() == before[::-1]  # e-notation, smallest first
    table.locator("th", has_text="contender").click()
    assert names.all_inner_texts() == sorted(before)
