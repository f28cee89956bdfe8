"""A page of the report, taken apart or open in a browser."""

import base64
import io
from html.parser import HTMLParser

from PIL import Image


class Page(HTMLParser):
    """The cells of every table, its bold cells, the pictures and the tags that were met."""

    def __init__(self, text):
        super().__init__()
        self.tables, self.bold, self.tags, self.pictures = [], [], [], {}
        self._inside = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        self._inside.append(tag)
        if tag == "table":
            self.tables.append([])
        if tag == "tr":
            self.tables[-1].append([])
        if tag in ("td", "th"):
            self.tables[-1][-1].append("")
        if tag == "img":
            found = dict(attrs)
            kind, content = found["src"].split(",", 1)
            assert kind == "data:image/png;base64"
            file = io.BytesIO(base64.b64decode(content))
            self.pictures[found["alt"]] = Image.open(file) if content else None

    def handle_endtag(self, tag):
        while self._inside and self._inside.pop() != tag:
            pass

    def handle_data(self, data):
        if {"td", "th"} & set(self._inside):
            self.tables[-1][-1][-1] += data
        if {"b", "td"} <= set(self._inside):
            self.bold.append(data)

    def rows(self, table):
        """The cells of each contender by heading, without the number of the row."""
        heads, *rows = self.tables[table]
        return {row[1]: dict(zip(heads[2:], row[2:], strict=True)) for row in rows}
