"""What was tried: what compilers, linkers and imports did not find, and modules of which only a part was compiled."""

from __future__ import annotations

import re
from collections.abc import Iterator

from fi_doctor.model import Ending, Outcome

_HEADER = re.compile(r"fatal error: (\S+?): No such file|cannot open source file \"(\S+?)\"")
_LIBRARY = re.compile(r"cannot find -l(?::?lib)?([\w.+-]+?)(?=:|\s|$)")
_MODULE = re.compile(r"ModuleNotFoundError: No module named '(\w+)")


def headers_not_found(outcomes: tuple[Outcome, ...]) -> tuple[object, ...]:
    """Names of headers, each once, sorted."""
    return _names(_HEADER, outcomes)


def libraries_not_found(outcomes: tuple[Outcome, ...]) -> tuple[object, ...]:
    """Names of libraries without lib and suffix, each once, sorted."""
    return _names(_LIBRARY, outcomes)


def python_modules_not_found(outcomes: tuple[Outcome, ...]) -> tuple[object, ...]:
    """Top-level names of Python modules, each once, sorted."""
    return _names(_MODULE, outcomes)


def not_compiled(outcomes: tuple[Outcome, ...], beginning: str) -> tuple[object, ...]:
    """Modules with such names of which only a part was compiled, with what there is to compile, once, sorted."""
    said = {outcome.whole_module for outcome in outcomes}
    return tuple(sorted(words for words in said if words and words.startswith(beginning)))


def _names(pattern: re.Pattern[str], outcomes: tuple[Outcome, ...]) -> tuple[object, ...]:
    """What the one group of each match that took part holds."""
    return tuple(sorted({found[found.lastindex or 0] for text in _said(outcomes) for found in pattern.finditer(text)}))


def _said(outcomes: tuple[Outcome, ...]) -> Iterator[str]:
    """The words of what failed."""
    for outcome in outcomes:
        if outcome.ending is Ending.RAISED:
            yield outcome.detail
        for cell in outcome.cells:
            if cell.ending is Ending.RAISED:
                yield cell.detail
                yield cell.traceback
