"""A report in which every text is hostile: to terminals, markup, tables, labels, and to who counts lines."""

from __future__ import annotations

import msgspec
from report_samples import SAMPLES

from fi_doctor.model import Report
from fi_doctor.reports import document

TEXT = (
    "</script><script>alert(1)</script><img src=x onerror=alert(1)>\"'`&{{7*7}}{%raw%}</style></details><!-- "
    '\x1b[31mred\x1b]0;title\x07 \u202eabc\u200b \x9b2J \udcff 中文 \r\n::error::x\n# TYPE x gauge\nx{y="z"} 1\nrow=1\\'
)


# Words of closed sets, which another word would make unknown, and so hide what is told of them.
_CLOSED = {"depth", "ending", "evidence", "holds", "kind", "result", "schema", "scope", "severity", "stage", "verdict"}


def everywhere(name="one-variant-broken"):
    """A sample with the text in every field that takes any."""
    return msgspec.convert(_bad(document.to_builtins(SAMPLES[name]())), Report)


def _bad(value, key=""):
    if isinstance(value, dict):
        return {name: _bad(one, name) for name, one in value.items()}
    if isinstance(value, list):
        return [_bad(one, key) for one in value]
    return TEXT if isinstance(value, str) and key not in _CLOSED else value
