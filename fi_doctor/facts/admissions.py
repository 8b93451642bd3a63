"""For which GPUs the installed source lets a call through: its own lists, majors and refusals, read and never run."""

from __future__ import annotations

import ast
from pathlib import Path

from fi_doctor.facts.definitions import Definitions
from fi_doctor.facts.symbols import Symbols
from fi_doctor.facts.values import Function, Value
from fi_doctor.facts.walk import Known, Walk
from fi_doctor.model import Admission, Missing

# Those that FlashInfer's sources name, and those between.
CAPABILITIES = (75, 80, 86, 87, 88, 89, 90, 100, 101, 103, 107, 110, 120, 121)


class Admissions:
    """Of one installed package's functions."""

    def __init__(self, root: Path, symbols: Symbols) -> None:
        self._root = root
        self._symbols = symbols
        definitions = Definitions(symbols)
        alike: Known = {}
        self._walks = {sm: Walk(symbols, definitions, sm, alike=alike) for sm in CAPABILITIES}

    def of(self, call: str) -> tuple[Admission, ...]:
        """What turns GPUs away of a call, by place; nothing where none is surely refused.

        call: a dotted name of which no argument is known, or with some by name, "flashinfer.mm_fp4(backend='cudnn')".
        What is refused for every GPU alike is refused for another reason than its capability, and left out.
        """
        dotted, given = _read(call)
        place = self._symbols.where(dotted)
        if isinstance(place, Missing):
            return ()
        file, _, line = place.rpartition(":")
        refused: dict[str, list[int]] = {}
        for sm, walk in self._walks.items():
            refusal = walk.refusal(Function(self._root / file, int(line)), given)
            if refusal is not None:
                refused.setdefault(self._symbols.place(refusal.path, refusal.line), []).append(sm)
            if not walk.has_asked:
                return ()
        turned_away = {sm for several in refused.values() for sm in several}
        admitted = tuple(sm for sm in CAPABILITIES if sm not in turned_away)
        if not admitted:
            return ()
        return tuple(Admission(source=at, admits=admitted, refuses=tuple(refused[at])) for at in sorted(refused))


def _read(call: str) -> tuple[str, dict[str, Value]]:
    """The name and the arguments of a call; those that are no number, text or truth are taken for not known."""
    dotted, bracket, _ = call.partition("(")
    tree = ast.parse(call, mode="eval").body if bracket else None
    given = tree.keywords if isinstance(tree, ast.Call) else []
    known = {one.arg: one.value.value for one in given if one.arg and isinstance(one.value, ast.Constant)}
    return dotted, {name: value for name, value in known.items() if value is None or isinstance(value, (int, str))}
