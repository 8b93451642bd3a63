"""What is foretold of each recorded machine by its facts alone, beside what was measured there.

    python benchmarks/backtest.py

A row is foretold to fail where it is unsupported, or a rule foretells that it is broken or gives wrong results; of the
others nothing is known that stands in the way. Rows that were not measured there do not count.
"""

from __future__ import annotations

import pathlib
import sys
from collections import Counter

from msgspec.structs import replace

from fi_doctor import knowledge, pipeline
from fi_doctor.model import Depth, Evidence, Verdict
from fi_doctor.probing import catalog
from fi_doctor.reports import document

MACHINES = pathlib.Path(__file__).parents[1] / "tests" / "machines"
_KNOWN = (Evidence.BUILT, Evidence.RAN, Evidence.VERIFIED)


def main() -> int:
    kb, specs = knowledge.load(), catalog.discover()
    totals: Counter[str] = Counter()
    print(f"{'machine':<46} rows  agree  foretold and failed  fails unforetold  works, foretold to fail")
    missed: dict[str, set[str]] = {}
    for path in sorted(MACHINES.glob("*/*.json")):
        report = document.read(path.read_bytes(), path.name)
        request = replace(report.request, required=())
        measured = pipeline.rejudge(report, request, kb=kb, specs=specs)
        bare = replace(report, outcomes=(), request=replace(request, depth=Depth.STATIC))
        foretold = pipeline.rejudge(bare, bare.request, kb=kb, specs=specs)
        said = {(row.feature, str(row.sm)): row.verdict for row in foretold.features}
        counts: Counter[str] = Counter()
        for row in measured.features:
            if row.evidence not in _KNOWN or row.verdict is Verdict.UNKNOWN or not row.needs_gpu:
                continue
            fails, expected = row.verdict is not Verdict.WORKS, said[row.feature, str(row.sm)] in _FAILING
            counts["rows"] += 1
            counts["agree"] += fails is expected
            counts["both"] += fails and expected
            counts["unforetold"] += fails and not expected
            counts["alarm"] += expected and not fails
            if fails is not expected:
                missed.setdefault(f"{row.feature} ({row.verdict})", set()).add(path.parent.name)
        totals += counts
        name = f"{path.parent.name}/{path.stem}"
        print(f"{name:<46} {_words(counts)}")
    share = 100 * totals["agree"] / max(totals["rows"], 1)
    print(f"{'all':<46} {_words(totals)}  {share:.1f} %")
    for name, where in sorted(missed.items()):
        print(f"  {name}: {', '.join(sorted(where))}")
    return 0


def _words(counts: Counter[str]) -> str:
    widths = {"rows": 4, "agree": 6, "both": 20, "unforetold": 17, "alarm": 24}
    return " ".join(f"{counts[name]:{width}}" for name, width in widths.items())


_FAILING = (Verdict.BROKEN, Verdict.WRONG_RESULT, Verdict.UNSUPPORTED)

if __name__ == "__main__":
    sys.exit(main())
