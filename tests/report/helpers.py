"""What the tests of several parts of the report use."""

import json
from html.parser import HTMLParser


class Read(HTMLParser):
    """A page as a browser would take it apart: its tags with their attributes, its texts, and what its scripts hold."""

    def __init__(self, html):
        super().__init__()
        self.tags, self.texts, self.scripts, self._in = [], [], [], ""
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        self._in = tag
        if tag == "script":
            self.scripts.append("")

    def handle_endtag(self, tag):
        self._in = ""

    def handle_data(self, text):
        if self._in == "script":
            self.scripts[-1] += text
        else:
            self.texts.append(text)

    @property
    def text(self):
        return " ".join(" ".join(self.texts).split())

    @property
    def data(self):
        return json.loads(self.scripts[0])


def read(path):
    return Read(path.read_text(encoding="utf-8"))
