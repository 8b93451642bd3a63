"""Why a group stands apart from most nodes: its independent differences, that on which most depends first."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from fi_doctor.diagnosis.fact_changes import Told
from fi_doctor.fleet import following, judging, wording
from fi_doctor.fleet.comparing import MOST, Apart, Compared
from fi_doctor.fleet.judging import Judge
from fi_doctor.fleet.nodes import natural
from fi_doctor.fleet.reading import Reading
from fi_doctor.fleet.weighing import MOST_COMPARED, Scales, Weighed
from fi_doctor.model.fleet import Drift, Following, NodeGroup, Split, Value, Weight
from fi_doctor.reports.text import clean, wrap

WIDTH = 80
_NAMES = 30  # columns for the names of a group
_TABLES = ("binaries.files[", "machine.folders[", "flashinfer.stale_modules.", "libraries.")


class Kind(NamedTuple):
    """Nodes that differ in nothing."""

    members: tuple[int, ...]
    first: Reading
    judged: int


class _Difference(NamedTuple):
    """A subject with its facts, the most telling first, those of subjects that follow from it, and like subjects."""

    subject: str
    own: list[Apart]
    followers: list[Apart]
    alike: int = 0  # further subjects of the same table with the same values


class Explainer:
    """Explains the kinds of nodes of a fleet."""

    def __init__(
        self, kinds: list[Kind], compared: Compared, readings: Sequence[Reading], judge: Judge, scales: Scales
    ) -> None:
        self._kinds, self._compared, self._readings = kinds, compared, readings
        self._judge, self._scales = judge, scales
        self._standing = [judging.standing(one) for one in judge.reports]

    def groups(self) -> tuple[NodeGroup, ...]:
        """All of them, the largest first."""
        return tuple(self._group(kind) for kind in self._kinds)

    def splits(self) -> tuple[Split, ...]:
        """The facts of which no value is that of most nodes, without those that follow from another."""
        facts = self._compared.split
        leaders = following.leaders({following.subject_of(fact) for fact in facts})
        subjects: dict[str, list[str]] = defaultdict(list)
        for fact in facts:
            subjects[leaders[following.subject_of(fact)]].append(fact)
        weights = self._weights_of_sides(subjects)
        found = [self._split(subject, of, weights.get(subject)) for subject, of in subjects.items()]
        return tuple(sorted(found, key=lambda one: (-one.weight.rank, one.fact)))

    def notes(self) -> tuple[str, ...]:
        """What was not looked at as closely as the rest."""
        if self._scales.compared < MOST_COMPARED:
            return ()
        return (f"Of {MOST_COMPARED} groups it was looked at which verdicts change; of the others what can rest on it",)

    def _group(self, kind: Kind) -> NodeGroup:
        names = tuple(self._readings[at].name for at in kind.members)
        aparts = self._aparts(kind)
        usual = self._usual(kind)
        rows = self._rows_apart(kind, usual)
        drifts: list[Drift] = []
        said: tuple[str, ...] = ()
        if aparts:
            drifts, said = self._drifts(kind, usual, aparts, names)
        is_odd = bool(aparts) or (bool(rows) and len(kind.members) < (1 - MOST) * len(self._readings))
        if is_odd and not aparts:
            said = self._by_rows(names, rows, kind, usual)
        return NodeGroup(nodes=names, judged=kind.judged, is_odd=is_odd, said=said, drifts=tuple(drifts), rows=rows)

    def _aparts(self, kind: Kind) -> list[Apart]:
        return [apart for number in kind.first.sections for apart in self._compared.drifts.get(number, ())]

    def _sides(self, kind: Kind) -> frozenset[tuple[str, Told]]:
        return frozenset(side for number in kind.first.sections for side in self._compared.sides.get(number, ()))

    def _usual(self, kind: Kind) -> Kind:
        """The kind that a group is compared with: with nothing apart, on its side of a split, the largest."""
        sides = self._sides(kind)
        ordinary = [one for one in self._kinds if not self._aparts(one)] or self._kinds
        return next((one for one in ordinary if self._sides(one) == sides), ordinary[0])

    def _rows_apart(self, kind: Kind, usual: Kind) -> tuple[str, ...]:
        here, there = self._standing[kind.judged], self._standing[usual.judged]
        return tuple(sorted({name for name, _ in here ^ there}))

    def _drifts(
        self, kind: Kind, usual: Kind, aparts: list[Apart], names: tuple[str, ...]
    ) -> tuple[list[Drift], tuple[str, ...]]:
        found = _differences(aparts)
        facts = {one.subject: [apart.fact for apart in (*one.own, *one.followers)] for one in found}
        weighed = self._scales.weigh(facts, kind.first, usual.first)
        found.sort(key=lambda one: (-weighed[one.subject].weight.rank, -len(one.followers), one.own[0].fact))
        drifts = [_drift(one, weighed[one.subject]) for one in found]
        said = wording.lines(group_name(names), [(one.own[0], one.alike) for one in found], WIDTH)
        return drifts, said

    def _by_rows(self, names: tuple[str, ...], rows: tuple[str, ...], kind: Kind, usual: Kind) -> tuple[str, ...]:
        """What its verdicts have otherwise, rows that fail first."""
        here, there = dict(self._standing[kind.judged]), dict(self._standing[usual.judged])
        told = sorted(rows, key=lambda name: (name.startswith(judging.FINDING), here.get(name) == "works", name))
        changes = [_change(name, here.get(name), there.get(name)) for name in told]
        found: list[str] = []
        for kept in (3, 2, 1):
            more = [f"and {len(told) - kept} more"] if len(told) > kept else []
            said = f"{group_name(names)}: nothing that configures it differs; {'; '.join([*changes[:kept], *more])}"
            if len(found := wrap(said, WIDTH, "", "  ")) <= wording.MOST_LINES:
                break
        return tuple(found[: wording.MOST_LINES])

    def _weights_of_sides(self, subjects: dict[str, list[str]]) -> dict[str, Weighed]:
        """What depends on the subjects of splits, by the two largest kinds that are on different sides."""
        if not subjects:
            return {}
        one = self._usual(self._kinds[0])
        other = next((kind for kind in self._kinds if self._sides(kind) != self._sides(one)), one)
        return self._scales.weigh(dict(subjects), other.first, one.first)

    def _split(self, subject: str, facts: list[str], weighed: Weighed | None) -> Split:
        fact = following.telling_first([one for one in facts if following.subject_of(one) == subject])[0]
        nodes: dict[Told, list[str]] = defaultdict(list)
        for kind in self._kinds:
            value = dict(self._sides(kind)).get(fact)
            if value is not None:
                nodes[value] += [self._readings[at].name for at in kind.members]
        nodes = {value: sorted(names, key=natural) for value, names in nodes.items()}
        ordered = sorted(nodes.items(), key=lambda item: (-len(item[1]), natural(item[1][0])))
        parts = [f"{wording.value(value, fact)} on {group_name(names)}" for value, names in ordered[:4]]
        more = [f"and {len(ordered) - 4} more values"] if len(ordered) > 4 else []
        return Split(
            fact=fact,
            said=f"{wording.called(fact)} {', '.join([*parts, *more])}",
            weight=weighed.weight if weighed else Weight.NOTHING,
            values=tuple(Value(value=wording.value(value, fact, 1000), nodes=tuple(of)) for value, of in ordered),
        )


def group_name(names: Sequence[str], longest: int = _NAMES) -> str:
    """The names of nodes, as many as there is room for: "node-3, node-7 and 12 more"."""
    shown = [short_of(clean(name, 200), longest) for name in names]
    for kept in range(len(shown), 0, -1):
        more = f" and {len(shown) - kept} more" if kept < len(shown) else ""
        text = f"{', '.join(shown[:kept])}{more}"
        if len(text) <= longest or kept == 1:
            return text
    return ""


def short_of(text: str, longest: int) -> str:
    """The text, cut where it is longer."""
    return text if len(text) <= longest else f"{text[: longest - 3]}..."


def _change(name: str, here: str | None, there: str | None) -> str:
    """What a row or a finding is on a node, and on the others."""
    if name.startswith(judging.FINDING):
        return name if there is None else f"without {name}" if here is None else f"{name} is of severity {here}"
    return f"{name} {here or 'is not there'}, the others {there or 'without it'}"


def _differences(aparts: Iterable[Apart]) -> list[_Difference]:
    """The independent differences among facts that a node has otherwise."""
    by_subject: dict[str, list[Apart]] = defaultdict(list)
    for apart in aparts:
        by_subject[following.subject_of(apart.fact)].append(apart)
    leaders = following.leaders(by_subject)
    found: dict[object, _Difference] = {}
    for subject, of in sorted(by_subject.items()):
        if leaders[subject] != subject:
            continue
        order = following.telling_first(apart.fact for apart in of)
        own = sorted(of, key=lambda apart: order.index(apart.fact))
        followers = [apart for name, rest in by_subject.items() if leaders[name] == subject != name for apart in rest]
        table = next((one for one in _TABLES if subject.startswith(one)), None)
        like = (table, own[0].here, own[0].others) if table else subject
        if (first := found.get(like)) is not None:
            followed = [*first.followers, *own, *followers]
            found[like] = first._replace(followers=followed, alike=first.alike + 1)
        else:
            found[like] = _Difference(subject, own, followers)
    return list(found.values())


def _drift(one: _Difference, weighed: Weighed) -> Drift:
    leading, *rest = one.own
    return Drift(
        fact=leading.fact,
        here=wording.value(leading.here, leading.fact, 1000),
        others=wording.value(leading.others, leading.fact, 1000),
        said=wording.said(leading, 200),
        weight=weighed.weight,
        rows=weighed.rows,
        findings=weighed.findings,
        follows=tuple(
            Following(
                fact=apart.fact,
                here=wording.value(apart.here, apart.fact, 400),
                others=wording.value(apart.others, apart.fact, 400),
            )
            for apart in (*rest, *one.followers)
        ),
    )
