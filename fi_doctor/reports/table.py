"""The matrix as a table without boxes: one line for each row, its variants under it where they disagree."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from rich.cells import cell_len, chop_cells, set_cell_size
from rich.text import Text

from fi_doctor.model import Cell, Evidence, FeatureRow, Missing, Scope, Verdict
from fi_doctor.model.phrases import AGREES, IN_PART
from fi_doctor.reports.answer import sms_of
from fi_doctor.reports.text import amount, clean, pack, reason

VERDICT_STYLES = {
    Verdict.WORKS: "green",
    Verdict.BROKEN: "bold red",
    Verdict.WRONG_RESULT: "bold red",
    Verdict.UNSUPPORTED: "yellow",
    Verdict.UNKNOWN: "magenta",
}
_FEATURE_WIDTH = 30  # every id of ours is shorter; a stranger's longer one is folded
_WHY_WIDTH = 26  # the longest variable of FlashInfer fits; where there is less room, the reason has lines of its own
_WHY_LIMIT = 400  # characters; the whole of it stands in the machine formats
_NOT_RUN = "; not run: "  # between where a feature is declared and why nothing was measured
_AS_ABOVE = "as above"
_MOST_UNKNOWN = 8  # names of variants that are unknown for one reason
_ID = re.compile(r"(?<=predicted by )[a-z0-9-]+")


class _Line(NamedTuple):
    """What the table says of a row or of a group of its variants."""

    names: str  # one name for each line
    sm: str
    judged: FeatureRow | Cell
    why: str


def matrix(rows: tuple[FeatureRow, ...], width: int) -> list[Text]:
    """The table of the rows in the order given; SM and scope have a column only where they differ."""
    has_sm = len(sms_of(rows)) > 1
    gap = 1 if has_sm and width < 100 else 2
    judged: list[FeatureRow | Cell] = [*rows, *(cell for row in rows for cell in row.cells)]
    has_scope = any(item.scope is Scope.SUBSET and item.evidence is not Evidence.NONE for item in judged)
    sizes = {
        "feature": min(_FEATURE_WIDTH, max(7, *(cell_len(name) for row in rows for name in _names(row)))),
        "SM": max(2, *(len(_sm(row)) for row in rows)) if has_sm else 0,
        "verdict": max(7, *(len(item.verdict) for item in judged)),
        "evidence": max(8, *(len(evidence(item)) for item in judged)),
        "scope": max(5, *(len(_scope(item)) for item in judged)) if has_scope else 0,
    }
    sizes = {name: size for name, size in sizes.items() if size}
    left = sum(sizes.values()) + gap * len(sizes)
    indent = left if width - left >= max(_WHY_WIDTH, *map(_longest_id, judged)) else 4
    table = [
        Text((" " * gap).join([*(set_cell_size(name, size) for name, size in sizes.items()), "why"]), style="bold")
    ]
    for line in _lines(rows, sizes["feature"], width - indent, is_narrow=indent != left):
        table += _drawn(line, sizes, gap, indent, width)
    return table


def _longest_id(judged: FeatureRow | Cell) -> int:
    """Of an id in the reason, which is there to be copied."""
    return max((cell_len(found) for found in _ID.findall(clean(judged.why, _WHY_LIMIT))), default=0)


def group_cells(row: FeatureRow) -> list[list[Cell]]:
    """The variants of a row in groups of the same judgement, that of the row first; one group when all agree.

    Variants that this version or GPU does not have say nothing about a row that others decide: they are left out.
    """
    groups: dict[tuple[str, ...], list[Cell]] = {}
    offered = [cell for cell in row.cells if cell.verdict is not Verdict.UNSUPPORTED]
    for cell in offered or row.cells:
        # Reasons of good cells differ in their numbers only; those of bad ones are why they are shown.
        why = "" if cell.verdict is Verdict.WORKS else cell.why
        groups.setdefault((cell.verdict, cell.evidence, cell.scope, why), []).append(cell)
    return sorted(groups.values(), key=lambda cells: (cells[0].verdict is not row.verdict, cells[0].why not in row.why))


def evidence(judged: FeatureRow | Cell) -> str:
    """The evidence; a row that was not measured now says so beside how it was known then."""
    is_locked = isinstance(judged, FeatureRow) and judged.locked
    return f"{judged.evidence} (locked)" if is_locked else str(judged.evidence)


def fold(text: str, width: int) -> list[str]:
    """Lines of at most `width` terminal columns: cut at spaces, else after a "/", and only then anywhere."""
    lines = [""]
    for word in text.split(" "):
        joined = f"{lines[-1]} {word}" if lines[-1] else word
        if cell_len(joined) <= width:
            lines[-1] = joined
        elif cell_len(word) <= width:
            lines.append(word)
        else:
            lines += _pieces(word, width)
    return lines if lines[0] or len(lines) == 1 else lines[1:]


def _pieces(word: str, width: int) -> list[str]:
    """A word that is longer than a line, as lines."""
    lines = [""]
    for part in re.findall(r"/?[^/]*/|[^/]+", word):
        if cell_len(lines[-1] + part) <= width:
            lines[-1] += part
        else:
            lines += chop_cells(part, width)
    return [line for line in lines if line]


def _drawn(line: _Line, sizes: dict[str, int], gap: int, indent: int, width: int) -> Iterator[Text]:
    """The lines on the screen; the reason stands beside the rest, or under it where there is no room."""
    room = width - sum(sizes.values()) - gap * len(sizes)
    is_beside = indent > sizes["feature"] or cell_len(line.why) <= room
    names = [piece for name in line.names.split("\n") for piece in _indented(name, sizes["feature"])]
    why = fold(line.why, max(room, 1) if is_beside else width - indent) if line.why else []
    judged = {
        "SM": Text(line.sm),
        "verdict": Text(str(line.judged.verdict), style=VERDICT_STYLES[line.judged.verdict]),
        "evidence": Text(evidence(line.judged)),
        "scope": Text(_scope(line.judged)),
    }
    for number in range(max(len(names), len(why) if is_beside else 1)):
        text = Text(set_cell_size(names[number] if number < len(names) else "", sizes["feature"]))
        for name, size in list(sizes.items())[1:]:
            cell = judged[name] if number == 0 else Text()
            text.append(" " * gap).append_text(cell).append(" " * (size - len(cell)))
        if is_beside and number < len(why):
            text.append(" " * gap + why[number])
        yield text
    if not is_beside:
        yield from (Text(" " * indent + piece) for piece in why)


def _indented(name: str, width: int) -> list[str]:
    """A name that is too long, folded without losing its indentation."""
    bare = name.lstrip(" ")
    margin = name[: len(name) - len(bare)]
    return [margin + piece for piece in fold(bare, width - len(margin))]


def _lines(rows: tuple[FeatureRow, ...], name_width: int, why_width: int, *, is_narrow: bool) -> Iterator[_Line]:
    """What is said of each row and each group of its variants.

    is_narrow: reasons have lines of their own, so that of what works less is said.
    """
    above: FeatureRow | None = None
    for row in rows:
        groups = group_cells(row)
        is_split = len(groups) > 1
        said = _said(row, is_narrow=is_narrow)
        if is_split and row.verdict is Verdict.WORKS:
            working = sum(len(cells) for cells in groups if _is_unremarkable(cells, row))
            said = _counted(said, f"{working} of {sum(map(len, groups))} variants")
        why = said if is_split else _with_count(said, row, groups)
        if above is not None and len(why) > why_width:
            short = _unless_above(said, row, above)
            why = short if is_split else _with_count(short, row, groups)
        yield _Line(clean(row.feature, 100), _sm(row), row, why)
        if is_split:
            listed = [cells for cells in groups if not _is_unremarkable(cells, row)]
            yield from _group_lines(listed, row, name_width, is_narrow=is_narrow)
        above = None if is_split else row


def _said(judged: FeatureRow | Cell, *, is_narrow: bool) -> str:
    """The reason; where there is little room none for what works, of which evidence and scope say the same."""
    is_plain = judged.verdict is Verdict.WORKS and judged.evidence is Evidence.VERIFIED
    if is_narrow and is_plain and judged.why in (AGREES, AGREES + IN_PART):
        return ""
    return reason(judged.why, _WHY_LIMIT)


def _is_unremarkable(cells: list[Cell], row: FeatureRow) -> bool:
    """Whether they work as their row does: they are counted, and only what differs is listed."""
    return row.verdict is Verdict.WORKS and cells[0].verdict is Verdict.WORKS


def _unless_above(why: str, row: FeatureRow, above: FeatureRow) -> str:
    """The reason, or that it stands in the row directly above: one broken toolkit breaks every row alike.

    Only a row of the same judgement is referred to.
    """
    if (row.verdict, row.evidence) != (above.verdict, above.evidence):
        return why
    before = reason(above.why, _WHY_LIMIT)
    if why == before:
        return _AS_ABOVE
    place, comma, rest = why.partition(_NOT_RUN)
    return f"{place}{comma}{_AS_ABOVE}" if rest and rest == before.partition(_NOT_RUN)[2] else why


def _group_lines(groups: list[list[Cell]], row: FeatureRow, name_width: int, *, is_narrow: bool) -> Iterator[_Line]:
    for number, cells in enumerate(groups):
        variants = pack(_cell_names(cells, row), name_width, "  ", "  ")
        is_above = number == 0 and cells[0].verdict is row.verdict and bool(cells[0].why) and cells[0].why in row.why
        why = _AS_ABOVE if is_above else _said(cells[0], is_narrow=is_narrow)
        yield _Line("\n".join(variants), "", cells[0], why)


def _cell_names(cells: list[Cell], row: FeatureRow) -> list[str]:
    """Their names; of many that are unknown for one reason the first ones, since machine formats have all."""
    names = [_cell_name(cell, row) for cell in cells]
    if cells[0].verdict is not Verdict.UNKNOWN or len(names) <= _MOST_UNKNOWN + 1:
        return names
    return [*names[:_MOST_UNKNOWN], f"and {len(names) - _MOST_UNKNOWN} more"]


def _names(row: FeatureRow) -> list[str]:
    """What the first column says of the row: its feature, and its variants where they are listed."""
    groups = group_cells(row)
    listed = [cells for cells in groups if not _is_unremarkable(cells, row)] if len(groups) > 1 else []
    return [clean(row.feature, 100), *(f"  {name}," for cells in listed for name in _cell_names(cells, row))]


def _cell_name(cell: Cell, row: FeatureRow) -> str:
    """The variant, with its probe where another probe of the row has one of that name, or it has none."""
    if cell.variant and len({each.probe for each in row.cells if each.variant == cell.variant}) == 1:
        return clean(cell.variant, 60)
    return clean(f"{cell.probe} {cell.variant}", 60)


def _sm(row: FeatureRow) -> str:
    return "-" if isinstance(row.sm, Missing) else str(row.sm)


def _scope(judged: FeatureRow | Cell) -> str:
    """Without evidence there is nothing that has a scope."""
    return "-" if judged.evidence is Evidence.NONE else str(judged.scope)


def _with_count(why: str, row: FeatureRow, groups: list[list[Cell]]) -> str:
    if len(row.cells) < 2:
        return why
    shown = sum(map(len, groups))
    rest = f", {len(row.cells) - shown} not offered here" if shown < len(row.cells) else ""
    return _counted(why, f"{amount(shown, 'variant')}{rest}")


def _counted(why: str, count: str) -> str:
    return f"{why} ({count})" if why else count
