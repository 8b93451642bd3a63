"""What works eagerly and not captured in a CUDA graph: which cells show it, and what leaves the capture out."""

from __future__ import annotations

from collections.abc import Callable

from fi_doctor import conditions
from fi_doctor.conditions import View
from fi_doctor.diagnosis import called
from fi_doctor.diagnosis.findings import filled_line, is_measured
from fi_doctor.diagnosis.matrix import deciding_cells
from fi_doctor.diagnosis.reads import is_read
from fi_doctor.model import (
    Action,
    Cell,
    Facts,
    Feature,
    FeatureRow,
    Finding,
    KnowledgeBase,
    Severity,
    Use,
    Verdict,
)

FAILS_IN_GRAPH = "works-only-outside-cuda-graphs"
GRAPH = "graph"  # how the variants begin that are captured
_CAUSE = "cuda-graph-capture"


def failing(use: Use | None, cells: tuple[Cell, ...]) -> tuple[Cell, ...]:
    """The captured cells that fail, where nothing else that decides the row does and their eager kin works."""
    deciding = deciding_cells(use, cells)
    bad = tuple(cell for cell in deciding if cell.verdict.is_failure and is_measured(cell.verdict, cell.evidence))
    return bad if all(_works_eagerly(cell, deciding, cells) for cell in bad) else ()


def find(kb: KnowledgeBase, facts: Facts, rows: tuple[FeatureRow, ...]) -> list[Finding]:
    """A finding for each row of which only the capture fails."""
    features = {feature.id: feature for feature in kb.features}
    found = []
    for row in rows:
        feature = features.get(row.feature)
        bad = failing(called.use_of(feature, row.sm, facts), row.cells) if feature is not None else ()
        if feature is not None and bad:
            found.append(_finding(feature, row, bad, kb, facts))
    return found


def action(feature: Feature, view: View, is_read: Callable[[str], bool]) -> Action | None:
    """What makes the installed vLLM run this feature outside of its CUDA graphs; None where no setting is read."""
    offered = (one for one in feature.uncaptured if not conditions.unknowns(one.line, view))
    return next((one for one in offered if is_read(one.setting)), None)


def words(bad: tuple[Cell, ...]) -> str:
    """What failed in the graph, in a few words."""
    first = bad[0]
    what = "gives wrong numbers" if first.verdict is Verdict.WRONG_RESULT else "fails"
    more = f" and {len(bad) - 1} more" if len(bad) > 1 else ""
    return f"works eagerly and not captured in a CUDA graph ({first.variant}{more} {what})"


def _works_eagerly(captured: Cell, deciding: tuple[Cell, ...], cells: tuple[Cell, ...]) -> bool:
    """Whether a cell is a captured one whose eager kin works: that of its name, else what decides beside it."""
    if not _is_captured(captured):
        return False
    name = captured.variant.removeprefix(f"{GRAPH}_")
    ours = [cell for cell in cells if cell.probe == captured.probe and not _is_captured(cell)]
    kin = [cell for cell in ours if cell.variant == name] or [cell for cell in ours if cell in deciding]
    return bool(kin) and all(cell.verdict is Verdict.WORKS and is_measured(cell.verdict, cell.evidence) for cell in kin)


def _is_captured(cell: Cell) -> bool:
    return cell.variant == GRAPH or cell.variant.startswith(f"{GRAPH}_")


def _finding(feature: Feature, row: FeatureRow, bad: tuple[Cell, ...], kb: KnowledgeBase, facts: Facts) -> Finding:
    is_called = called.is_called(feature, row.sm, facts, kb)
    view = View(facts, ())
    mends = action(feature, view, lambda name: is_read(name, facts, kb.settings))
    first = bad[0]
    when = "" if is_called else f"; only when turned on ({called.caller(kb, facts)})"
    return Finding(
        id=FAILS_IN_GRAPH,
        cause=_CAUSE,
        severity=Severity.ERROR if is_called else Severity.INFO,
        title=f"{row.name} works eagerly and not captured in a CUDA graph{when}",
        why=f"{first.variant}: {first.why}. What it calls works outside of a graph; vLLM captures its decoding steps.",
        fix=(f"add to vllm serve: {filled_line(mends, view)}",) if mends is not None else (),
        features=(row.feature,),
        source="measured here",
    )
