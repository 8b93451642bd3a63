"""What is foretold of each recorded machine without its own record, beside what was measured there.

    python benchmarks/backtest.py

Each machine is judged as --target judges: by its facts, by what rules say of releases and GPUs, and by what the other
recorded machines showed. A row is foretold to fail where it is unsupported, broken or wrong, to work where machines of
its kind ran it; of others nothing stands against it that is known. Rows that were not measured there do not count.
"""

from __future__ import annotations

import pathlib
import sys
from collections import Counter

from msgspec.structs import replace

from fi_doctor import knowledge, pipeline
from fi_doctor.knowledge import atlas
from fi_doctor.model import Depth, Evidence, FeatureRow, Report, Verdict
from fi_doctor.model.targets import Target
from fi_doctor.probing import catalog
from fi_doctor.probing import plan as planning
from fi_doctor.reports import document

MACHINES = pathlib.Path(__file__).parents[1] / "tests" / "machines"
KB, SPECS = knowledge.load(), catalog.discover()
HEAD = ("rows", "agree", "fails, foretold", "works, foretold", "works, open", "fails, open", "works, not fails")
_KNOWN = (Evidence.BUILT, Evidence.RAN, Evidence.VERIFIED)


def main() -> int:
    """Print all of it; 1 where a row that was foretold to work failed, or an operator agrees in less than 95 %."""
    by_machine: dict[str, Counter[str]] = {}
    by_row: dict[str, Counter[str]] = {}
    leans: Counter[str] = Counter()
    missed: dict[str, set[str]] = {}
    for path in sorted(MACHINES.glob("*/*.json")):
        report = document.read(path.read_bytes(), path.name)
        measured = pipeline.rejudge(report, replace(report.request, required=()), kb=KB, specs=SPECS)
        told = foretold(report, path.parent.name)
        said = {(row.feature, str(row.sm)): row for row in told.features}
        on = {(one.feature, str(one.sm)): one.leans_on for one in told.expected.rows} if told.expected else {}
        for row in measured.features:
            if row.evidence not in _KNOWN or row.verdict is Verdict.UNKNOWN or not row.needs_gpu:
                continue
            key = (row.feature, str(row.sm))
            kind = compared(row, said[key])
            for counts in (by_machine.setdefault(f"{path.parent.name}/{path.stem}", Counter()), count_of(by_row, row)):
                counts.update(("rows", kind, *(["agree"] if agrees(kind) else [])))
            leans.update([lean(said[key], on.get(key, ()))] if agrees(kind) else [])
            if not agrees(kind):
                missed.setdefault(f"{row.feature}: {kind} ({row.why[:80]})", set()).add(path.parent.name)
    return told_to(by_machine, by_row, leans, missed)


def foretold(report: Report, machine: str) -> Report:
    """The report that --target would give of that machine's facts, its own record left out."""
    request = replace(report.request, required=(), depth=Depth.STATIC)
    return pipeline.conclude(
        request,
        kb=KB,
        facts=report.facts,
        planned=planning.plan(SPECS, report.facts, request),
        outcomes=(),
        created=report.created,
        target=Target(words=machine, sm=90),
        known=atlas.load().without(machine),
    )


def compared(measured: FeatureRow, said: FeatureRow) -> str:
    """Which column of the table a row belongs to."""
    works = measured.verdict is Verdict.WORKS
    if said.verdict is Verdict.WORKS:
        return "works, foretold" if works else "fails, not works"
    if said.verdict is Verdict.UNKNOWN:
        return "works, open" if works else "fails, open"
    return "works, not fails" if works else "fails, foretold"


def agrees(kind: str) -> bool:
    """Whether what was measured is what was foretold; that nothing stands against a row counts as its working."""
    return kind in ("works, foretold", "works, open", "fails, foretold")


def lean(said: FeatureRow, on: tuple[str, ...]) -> str:
    """What an agreement leans on: a rule, how many machines, what the package says, or nothing that is known."""
    if said.verdict is Verdict.UNSUPPORTED:
        return "the package's own gates"
    if said.verdict is Verdict.UNKNOWN:
        return "nothing stands against it"
    if said.verdict is Verdict.WORKS:
        return f"{len(on)} other machine{'s' * (len(on) != 1)} of that release and SM ran it"
    return f"rule or machine {', '.join(on)}"


def count_of(by_row: dict[str, Counter[str]], row: FeatureRow) -> Counter[str]:
    return by_row.setdefault(row.feature, Counter())


def told_to(
    by_machine: dict[str, Counter[str]],
    by_row: dict[str, Counter[str]],
    leans: Counter[str],
    missed: dict[str, set[str]],
) -> int:
    """Print the tables."""
    columns = (*HEAD, "fails, not works")
    totals: Counter[str] = Counter()
    for table, name in ((by_machine, "machine"), (by_row, "operator")):
        print(f"{name:<52} {'  '.join(columns)}")
        for key, counts in sorted(table.items()):
            share = 100 * counts["agree"] / counts["rows"]
            print(f"{key:<52} {'  '.join(f'{counts[one]:{len(one)}}' for one in columns)}  {share:.0f} %")
        totals = sum(table.values(), Counter())
    print(f"{'all':<52} {'  '.join(f'{totals[one]:{len(one)}}' for one in columns)}")
    print(f"\nagreement {100 * totals['agree'] / totals['rows']:.1f} %; of {totals['agree']} agreements lean on:")
    for name, number in leans.most_common():
        print(f"  {number:4} {name}")
    for name, where in sorted(missed.items()):
        print(f"missed: {name}: {', '.join(sorted(where))}")
    low = [name for name, counts in by_row.items() if counts["agree"] < 0.95 * counts["rows"]]
    wrong = totals["fails, not works"]
    print(f"\n{wrong} rows foretold to work failed; operators below 95 %: {', '.join(sorted(low)) or 'none'}")
    return int(bool(wrong or low))


if __name__ == "__main__":
    sys.exit(main())
