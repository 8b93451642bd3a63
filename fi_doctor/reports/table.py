"""The matrix as a table without boxes: one line for each row, its variants under it where they disagree."""

from __future__ import annotations

from collections.abc import Iterator

from rich.table import Table
from rich.text import Text

from fi_doctor.model import Cell, Evidence, FeatureRow, Missing, Verdict
from fi_doctor.reports.answer import sms_of
from fi_doctor.reports.text import amount, clean, pack

VERDICT_STYLES = {
    Verdict.WORKS: "green",
    Verdict.BROKEN: "bold red",
    Verdict.WRONG_RESULT: "bold red",
    Verdict.UNSUPPORTED: "yellow",
    Verdict.UNKNOWN: "magenta",
}
_FEATURE_WIDTH = 30  # every id of ours is shorter; a stranger's longer one is folded
_WHY_WIDTH = 20  # never less, whatever the terminal's width
_WHY_LIMIT = 400  # characters; the whole of it stands in the machine formats


def matrix(rows: tuple[FeatureRow, ...], width: int) -> Table:
    """The table of the rows in the order given; the SM has a column only when there are several."""
    has_sm = len(sms_of(rows)) > 1
    gap = 1 if has_sm and width < 100 else 2
    judged: list[FeatureRow | Cell] = [*rows, *(cell for row in rows for cell in row.cells)]
    columns = {
        "feature": min(_FEATURE_WIDTH, max(len(name) for row in rows for name in _names(row))),
        "SM": max(2, *(len(_sm(row)) for row in rows)) if has_sm else 0,
        "verdict": max(7, *(len(item.verdict) for item in judged)),
        "evidence": max(8, *(len(item.evidence) for item in judged)),
        "scope": max(5, *(len(_scope(item)) for item in judged)),
    }
    columns = {name: size for name, size in columns.items() if size}
    why = max(_WHY_WIDTH, width - sum(columns.values()) - gap * len(columns))
    table = Table(box=None, padding=(0, gap, 0, 0), pad_edge=False, header_style="bold", show_edge=False)
    for name, size in {**columns, "why": why}.items():
        table.add_column(name, width=size, overflow="fold")
    for line in _lines(rows, columns["feature"], why):
        table.add_row(*(line if has_sm else (line[0], *line[2:])))
    return table


def group_cells(row: FeatureRow) -> list[list[Cell]]:
    """The variants of a row in groups of the same judgement, in declared order; one group when all agree.

    Variants that this version or GPU does not have say nothing about a row that others decide: they are left out.
    """
    groups: dict[tuple[str, ...], list[Cell]] = {}
    offered = [cell for cell in row.cells if cell.verdict is not Verdict.UNSUPPORTED]
    for cell in offered or row.cells:
        # Reasons of good cells differ in their numbers only; those of bad ones are why they are shown.
        why = "" if cell.verdict is Verdict.WORKS else cell.why
        groups.setdefault((cell.verdict, cell.evidence, cell.scope, why), []).append(cell)
    return list(groups.values())


def _lines(rows: tuple[FeatureRow, ...], name_width: int, why_width: int) -> Iterator[tuple[Text, ...]]:
    """Cells of feature, SM, verdict, evidence, scope and why, for each row and each group of its variants."""
    above = ""
    for row in rows:
        groups = group_cells(row)
        why = clean(row.why, _WHY_LIMIT)
        # One broken toolkit breaks every row for the same long reason: it is worth reading once.
        said = "as above" if why == above and len(why) > why_width else why
        above = why
        yield (Text(clean(row.feature, 100)), Text(_sm(row)), *_judged(row), Text(_with_variants(said, row, groups)))
        if len(groups) > 1:
            yield from (_group_line(cells, row, name_width) for cells in groups)


def _group_line(cells: list[Cell], row: FeatureRow, name_width: int) -> tuple[Text, ...]:
    variants = pack((_cell_name(cell, row) for cell in cells), name_width, "  ", "  ")
    why = "as above" if cells[0].why in row.why else clean(cells[0].why, _WHY_LIMIT)
    return (Text("\n".join(variants)), Text(), *_judged(cells[0]), Text(why))


def _names(row: FeatureRow) -> list[str]:
    """What the first column says of the row: its feature, and its variants where they are listed."""
    listed = row.cells if len(group_cells(row)) > 1 else ()
    return [clean(row.feature, 100), *(f"  {_cell_name(cell, row)}" for cell in listed)]


def _cell_name(cell: Cell, row: FeatureRow) -> str:
    """The variant, with its probe where several probes decide the row."""
    if len({each.probe for each in row.cells}) == 1:
        return clean(cell.variant, 60)
    return clean(f"{cell.probe} {cell.variant}", 60)


def _sm(row: FeatureRow) -> str:
    return "-" if isinstance(row.sm, Missing) else str(row.sm)


def _judged(judged: FeatureRow | Cell) -> tuple[Text, Text, Text]:
    verdict = Text(str(judged.verdict), style=VERDICT_STYLES[judged.verdict])
    return verdict, Text(str(judged.evidence)), Text(_scope(judged))


def _scope(judged: FeatureRow | Cell) -> str:
    """Without evidence there is nothing that has a scope."""
    return "-" if judged.evidence is Evidence.NONE else str(judged.scope)


def _with_variants(why: str, row: FeatureRow, groups: list[list[Cell]]) -> str:
    if len(groups) > 1:
        return f"{why.rstrip('.')}; by variant:" if why else "by variant:"
    if len(row.cells) < 2:
        return why
    shown = sum(map(len, groups))
    rest = f", {len(row.cells) - shown} not offered here" if shown < len(row.cells) else ""
    return f"{why} ({amount(shown, 'variant')}{rest})".strip()
