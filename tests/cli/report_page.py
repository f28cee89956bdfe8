"""A page of the report, taken apart or open in a browser."""

import json
from html.parser import HTMLParser


class Page(HTMLParser):
    """The cells of every table, its bold cells, the figures' data and the tags that were met."""

    def __init__(self, text):
        super().__init__()
        self.tables, self.bold, self.tags, self.data = [], [], [], ""
        self._inside = []
        self.feed(text)
        self.figures = json.loads(self.data)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        self._inside.append((tag, dict(attrs)))
        if tag == "table":
            self.tables.append([])
        if tag == "tr":
            self.tables[-1].append([])
        if tag in ("td", "th"):
            self.tables[-1][-1].append("")

    def handle_endtag(self, tag):
        while self._inside and self._inside.pop()[0] != tag:
            pass

    def handle_data(self, data):
        tags = [tag for tag, _ in self._inside]
        if "td" in tags or "th" in tags:
            self.tables[-1][-1][-1] += data
        if "b" in tags and "td" in tags:
            self.bold.append(data)
        if self._inside and self._inside[-1][1].get("id") == "figures":
            self.data += data

    def rows(self, table):
        return {
            row[0]: [" ".join(cell.split()) for cell in row[1:]] for row in self.tables[table][1:]
        }


class Watched:
    """The page open in a window of its own, with all that it complained of and asked for."""

    def __init__(self, browser, address, **options):
        self.complaints, self.requests = [], []
        self.page = browser.new_context(**options).new_page()
        self.page.on("console", lambda message: self.complaints.append(message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(address)
        self.page.wait_for_selector(".plot.profiles .line", state="attached")

    def check(self, address):
        assert not self.complaints, self.complaints
        outside = [url for url in self.requests if not url.startswith(("data:", "blob:"))]
        assert outside == [address], outside
