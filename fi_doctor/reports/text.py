"""Text for people: hostile characters made visible, lines wrapped, amounts and durations in words."""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Iterable

from fi_doctor.model import ActionKind, Recommendation
from fi_doctor.model.phrases import parted

COMMAND_LIMIT = 100_000  # characters of what is to be pasted, which is never cut
LIMIT = 1000  # characters of one sentence; the machine formats keep all of it
# Commands within a sentence, which are copied whole: "export NAME=value", "fi-doctor check --python PATH".
_COMMAND = re.compile(r"\b(?:export|unset) [A-Z_]\S*|\bfi-doctor [a-z]+(?: --[a-z-]+ [^\s-]\S*)*")
_GLUE = "\u00a0"  # textwrap does not break at it, and `clean` leaves none in the text
_PACKAGE_FOLDER = re.compile(r"(?:/[^\s/'\":,]+)+/(?:site|dist)-packages/")


def add_to(one: Recommendation) -> str:
    """What stands before a flag: whose command line it is for; "" where the line is a sentence, or no flag."""
    if one.kind is not ActionKind.FLAG or not one.line.startswith("-"):
        return ""
    return f"add to {'sglang.launch_server' if one.holds.startswith('sglang') else 'vllm serve'}: "


def clean(text: str, limit: int = LIMIT) -> str:
    """The text on one line: white space collapsed, every character that a terminal may obey written as an escape.

    Package and GPU names, messages and reports come from elsewhere: ESC, C1 controls, bidirectional overrides,
    zero-width characters and undecodable bytes are shown and not sent.
    """
    line = " ".join(text.split())
    if not line.isprintable():
        line = "".join(char if char.isprintable() else _escape(char) for char in line)
    if len(line) <= limit:
        return line
    return f"{line[:limit]} [{len(line) - limit} more characters]"


def command(line: str) -> str:
    """A line that is to be pasted, as `clean` leaves it: one that is cut would do something else."""
    return clean(line, COMMAND_LIMIT)


def around(text: str, at: int, limit: int) -> str:
    """The part of a line that is round a place in it, with "..." for what is left out; at most `limit` characters."""
    if len(text) <= limit:
        return text
    room = limit - 2 * len("...")
    begin = min(max(0, at - room // 4), len(text) - room)
    end = begin + room
    return f"{'...' if begin else ''}{text[begin:end]}{'...' if end < len(text) else ''}"


def reason(text: str, limit: int) -> str:
    """A reason as `clean` gives it, of which the command at its end that settles it stays whole."""
    said, remedy = parted(text)
    if len(text) <= limit or not remedy:
        return clean(text, limit)
    return f"{clean(said, max(limit - len(remedy), limit // 4))}{clean(remedy, COMMAND_LIMIT)}"


def clean_lines(text: str) -> list[str]:
    """The lines of a log that are not empty, each cleaned, its indentation kept."""
    lines = [line.expandtabs(4).rstrip() for line in text.splitlines()]
    return [" " * (len(line) - len(line.lstrip(" "))) + clean(line, 300) for line in lines if line]


def wrap(text: str, width: int, first: str = "", rest: str | None = None, *, limit: int = LIMIT) -> list[str]:
    """Lines of at most `width` columns; neither a word nor a command is cut, so that both can be copied whole."""
    lines = textwrap.wrap(
        _COMMAND.sub(lambda match: match[0].replace(" ", _GLUE), clean(text, limit)),
        width,
        initial_indent=first,
        subsequent_indent=first if rest is None else rest,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return [line.replace(_GLUE, " ") for line in lines]


def brief(text: str, limit: int) -> str:
    """The text on one line, packages without the folder that they are in, and its end left out at a space."""
    line = _PACKAGE_FOLDER.sub(".../", clean(text))
    return line if len(line) <= limit else f"{line[: limit - 3].rpartition(' ')[0] or line[: limit - 3]}..."


def pack(items: Iterable[str], width: int, first: str = "", rest: str = "  ") -> list[str]:
    """Items with commas between them, as many on a line as fit; an item is never broken."""
    lines, is_empty = [first], True
    for item in items:
        text = clean(item)
        if is_empty:
            lines[-1] += text
        elif len(lines[-1]) + len(text) + 3 > width:
            lines[-1] += ","
            lines.append(rest + text)
        else:
            lines[-1] += f", {text}"
        is_empty = False
    return lines


def amount(count: int, noun: str) -> str:
    """A count and its noun: "1 feature", "2 features"."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def names(words: Iterable[str], most: int = 12) -> str:
    """Words with commas, the end counted where there are many."""
    every = list(words)
    if len(every) <= most:
        return ", ".join(every)
    return f"{', '.join(every[:most])} and {len(every) - most} more"


def fold(name: str, room: int) -> list[str]:
    """A name on as many lines as it needs, broken after an underscore where there is one: no part of it is lost."""
    lines = [""]
    for part in re.findall(r"[^_]*_+|[^_]+", name):
        rest = part
        if lines[-1] and len(lines[-1]) + len(rest) > room:
            lines.append("")
        while len(rest) > room:
            lines[-1], rest = rest[:room], rest[room:]
            lines.append("")
        lines[-1] += rest
    return lines


def minutes(seconds: float) -> str:
    """An estimate: 12 min, under 1 min."""
    return "under 1 min" if seconds < 60 else f"{math.ceil(seconds / 60)} min"


def about(seconds: float) -> str:
    """The same in a sentence: about 12 min, under 1 min."""
    return f"{'' if seconds < 60 else 'about '}{minutes(seconds)}"


def clock(seconds: float) -> str:
    """A duration as a clock shows it: 0:41, 12:05, 1:02:03."""
    if not math.isfinite(seconds):
        return "?:??"
    whole = max(0, round(seconds))
    hours, minutes = divmod(whole // 60, 60)
    return f"{hours}:{minutes:02}:{whole % 60:02}" if hours else f"{minutes}:{whole % 60:02}"


def duration(seconds: float) -> str:
    """A duration in words: 0.4 s, 41 s, 10 min, 1 min 30 s."""
    if not math.isfinite(seconds):
        return "any time"
    if seconds < 10:
        return f"{seconds:.1f} s".replace(".0 s", " s")
    minutes, rest = divmod(round(seconds), 60)
    if not minutes:
        return f"{rest} s"
    return f"{minutes} min {rest} s" if rest else f"{minutes} min"


def _escape(char: str) -> str:
    return char.encode("unicode_escape").decode("ascii")
