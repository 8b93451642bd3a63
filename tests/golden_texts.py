"""What golden files keep of a report: machine formats without the facts, pages as the text that a person reads."""

from __future__ import annotations

import html.parser
import re

_OURS = {"style", "script"}  # the same in every page, and tested by themselves
_OURS_OF_PAGE = re.compile(r"(?<=<style>).*?(?=</style>)|(?<=<script>).*?(?=</script>)|(?<=sha256-)[^&']+", re.DOTALL)
_LINES = {"p", "li", "h1", "h2", "h3", "summary", "tr", "div", "time", "title", "pre", "table", "details", "section"}


def kept(text, form, *, whole=False):
    """The text without what the recording, or every page, holds already. whole: of a page its markup too."""
    if form == "html":
        return _OURS_OF_PAGE.sub("", text) if whole else text_of(text)
    pattern = {"json": r'  "facts": \{\n.*?\n  \},\n', "yaml": r"facts:\n(?: .*\n|-.*\n)*"}.get(form)
    return re.sub(pattern, "", text, count=1, flags=re.DOTALL if form == "json" else 0) if pattern else text


def text_of(page):
    """What a page says, a line for each of its lines and paragraphs."""
    reader = _Reader()
    reader.feed(page)
    reader.close()
    lines = (" ".join(line.split()) for line in "".join(reader.parts).splitlines())
    return "\n".join(line for line in lines if line) + "\n"


class _Reader(html.parser.HTMLParser):
    def __init__(self):
        super().__init__()
        self.parts, self._within = [], []

    def handle_starttag(self, tag, attrs):
        if tag in _LINES:
            self.parts.append("\n")
        if tag in ("td", "th", "span", "em"):
            self.parts.append(" ")
        if tag in _OURS:
            self._within.append(tag)

    def handle_endtag(self, tag):
        if tag in _OURS:
            self._within.pop()

    def handle_data(self, data):
        if not self._within:
            self.parts.append(data)
