"""Why a group stands apart from most nodes: its independent differences, that on which most depends first."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from fi_doctor.diagnosis.fact_changes import Told
from fi_doctor.fleet import following, judging, majority, wording
from fi_doctor.fleet.comparing import Apart, Compared
from fi_doctor.fleet.judging import Judge
from fi_doctor.fleet.majority import RowApart, RowSplit
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
        self._rows: dict[tuple[int, ...], tuple[RowApart, ...]] = {}  # by the members of a kind
        self._row_splits: list[tuple[list[Kind], RowSplit]] = []
        self._compare_rows()

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
        found += [self._split_of_rows(kinds, split) for kinds, split in self._row_splits]
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
        rows = self._rows[kind.members]
        drifts: list[Drift] = []
        said: tuple[str, ...] = ()
        if aparts:
            drifts, said = self._drifts(kind, usual, aparts, names)
        elif rows:
            said = _by_rows(names, rows)
        return NodeGroup(
            nodes=names,
            judged=kind.judged,
            is_odd=bool(aparts or rows),
            said=said,
            drifts=tuple(drifts),
            rows=tuple(one.name for one in rows),
        )

    def _aparts(self, kind: Kind) -> list[Apart]:
        return [apart for number in kind.first.sections for apart in self._compared.drifts.get(number, ())]

    def _sides(self, kind: Kind) -> frozenset[tuple[str, Told]]:
        return frozenset(side for number in kind.first.sections for side in self._compared.sides.get(number, ()))

    def _usual(self, kind: Kind) -> Kind:
        """The kind that a group is compared with: with nothing apart, on its side of a split, the largest."""
        sides = self._sides(kind)
        ordinary = [one for one in self._kinds if not self._aparts(one)] or self._kinds
        return next((one for one in ordinary if self._sides(one) == sides), ordinary[0])

    def _compare_rows(self) -> None:
        """Verdicts are compared among nodes that are on one side of every split: on another they may well differ."""
        sides: dict[frozenset[tuple[str, Told]], list[Kind]] = defaultdict(list)
        for kind in self._kinds:
            sides[self._sides(kind)].append(kind)
        standing = [dict(judging.standing(one)) for one in self._judge.reports]
        every = [(standing[kind.judged], len(kind.members)) for kind in self._kinds]
        for kinds in sides.values():
            of = [(standing[kind.judged], len(kind.members)) for kind in kinds]
            aparts, splits = majority.compare(of, every)
            self._rows.update(zip((kind.members for kind in kinds), aparts, strict=True))
            self._row_splits += [(kinds, one) for one in splits]

    def _drifts(
        self, kind: Kind, usual: Kind, aparts: list[Apart], names: tuple[str, ...]
    ) -> tuple[list[Drift], tuple[str, ...]]:
        found = _differences(aparts)
        facts = {one.subject: [apart.fact for apart in (*one.own, *one.followers)] for one in found}
        weighed = self._scales.weigh(facts, kind.first, usual.first)
        found.sort(key=lambda one: (-weighed[one.subject].weight.rank, *_order(one)))
        drifts = [_drift(one, weighed[one.subject]) for one in found]
        said = wording.lines(group_name(names), [(one.own[0], one.alike) for one in found], WIDTH)
        return drifts, said

    def _weights_of_sides(self, subjects: dict[str, list[str]]) -> dict[str, Weighed]:
        """What depends on the subjects of splits, by the two largest kinds that are on different sides."""
        if not subjects:
            return {}
        one = self._usual(self._kinds[0])
        other = next((kind for kind in self._kinds if self._sides(kind) != self._sides(one)), one)
        return self._scales.weigh(dict(subjects), other.first, one.first)

    def _split_of_rows(self, kinds: list[Kind], split: RowSplit) -> Split:
        nodes: list[tuple[str, list[str]]] = []
        for value, of in split.sides:
            names = (self._readings[at].name for n in of for at in kinds[n].members)
            nodes.append((value or "not there", sorted(names, key=natural)))
        name, *alike = split.names
        more = f" ({len(alike)} more like it)" if alike else ""
        is_row = not name.startswith(judging.FINDING)
        return Split(
            fact=f"features[{name}].verdict" if is_row else f"findings[{name.removeprefix(judging.FINDING)}].severity",
            said=f"{name}: {_by_value(nodes)}{more}",
            weight=Weight.VERDICT if is_row else Weight.FINDING,
            values=tuple(Value(value=value, nodes=tuple(of)) for value, of in nodes),
            rows=split.names,
        )

    def _split(self, subject: str, facts: list[str], weighed: Weighed | None) -> Split:
        fact = following.telling_first([one for one in facts if following.subject_of(one) == subject])[0]
        nodes: dict[Told, list[str]] = defaultdict(list)
        for kind in self._kinds:
            value = dict(self._sides(kind)).get(fact)
            if value is not None:
                nodes[value] += [self._readings[at].name for at in kind.members]
        nodes = {value: sorted(names, key=natural) for value, names in nodes.items()}
        ordered = sorted(nodes.items(), key=lambda item: (-len(item[1]), natural(item[1][0])))
        return Split(
            fact=fact,
            said=f"{wording.called(fact)} {_by_value([(wording.value(value, fact), of) for value, of in ordered])}",
            weight=weighed.weight if weighed else Weight.NOTHING,
            values=tuple(Value(value=wording.value(value, fact, 1000), nodes=tuple(of)) for value, of in ordered),
        )


def _by_rows(names: tuple[str, ...], rows: tuple[RowApart, ...]) -> tuple[str, ...]:
    """What its verdicts have otherwise, rows that fail first."""
    told = sorted(rows, key=lambda one: (one.name.startswith(judging.FINDING), one.here == "works", one.name))
    changes = list(map(_change, told))
    found: list[str] = []
    for kept in (3, 2, 1):
        more = [f"and {len(told) - kept} more"] if len(told) > kept else []
        said = f"{group_name(names)}: nothing that configures it differs; {'; '.join([*changes[:kept], *more])}"
        if len(found := wrap(said, WIDTH, "", "  ")) <= wording.MOST_LINES:
            break
    return tuple(found[: wording.MOST_LINES])


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


def _by_value(nodes: Sequence[tuple[str, Sequence[str]]]) -> str:
    """Who has which value: "12.4 on node-3, 13.0 on node-7"."""
    parts = [f"{value} on {group_name(names)}" for value, names in nodes[:4]]
    more = [f"and {len(nodes) - 4} more values"] if len(nodes) > 4 else []
    return ", ".join([*parts, *more])


def _change(one: RowApart) -> str:
    """What a row or a finding is on a node, and on the others."""
    if one.name.startswith(judging.FINDING):
        if one.others == majority.NOT_THERE:
            return one.name
        return f"{one.name} is of severity {one.here}" if one.here else f"without {one.name}"
    return f"{one.name} {one.here or 'is not there'}, {one.who} {one.others or 'without it'}"


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


def _order(one: _Difference) -> tuple[bool, int, str]:
    """Of what weighs the same: what is built in or installed, then variables, which often follow from it."""
    fact = one.own[0].fact
    return fact.startswith("environment"), -len(one.followers), fact
