"""What `fi-doctor explain` costs on large logs, and what to expect of it on reports that it was not made from.

    python benchmarks/explain.py                      # speed, beside grep with as many literals, and what signs rest on
    python benchmarks/explain.py --corpus FOLDER      # also the estimate: dev.jsonl and score.py are in FOLDER

The estimate takes the reports apart into five folds. For each fold the faults are put aside that would not be without
its reports (all that `learnt_from` names are in it), and the fold's reports are diagnosed with the rest. Faults that
were learnt from the packages' sources alone stay. It is done ten times with other folds, and the mean is printed.
"""

import argparse
import importlib.util
import io
import json
import pathlib
import random
import resource
import subprocess
import sys
import tempfile
import time

from fi_doctor.explaining import events, telling, usage
from fi_doctor.explaining.diagnose import Source, diagnose
from fi_doctor.knowledge import faults
from fi_doctor.model import REPORT

ROOT = pathlib.Path(__file__).parents[1]
HEALTHY = sorted((ROOT / "tests" / "explaining" / "healthy").glob("*.log"))
CRASH = b"RuntimeError: Could not find nvcc and default cuda_home='/usr/local/cuda' doesn't exist\n"
FOLDS, TIMES = 5, 10


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--corpus", type=pathlib.Path)
    parser.add_argument("--mib", type=int, default=1024)
    asked = parser.parse_args()
    print("\n".join(rests(faults.load_all())))
    print("\n".join(speed(asked.mib)))
    if asked.corpus:
        print("\n".join(estimate(asked.corpus)))


def rests(known):
    signs = [(fault, sign) for fault in known for sign in fault.signs]
    alone = [(fault, sign) for fault, sign in signs if sign.source == REPORT]
    causes = {fault.cause for fault in known}
    yield f"{len(known)} faults of {len(causes)} causes, {len(signs)} signs, {len(alone)} of them from a report alone"
    for fault, sign in alone:
        yield f"  {fault.id}: {sign.text}"


def speed(mib):
    literals = sorted(telling.literals() | usage.literals() | events.literals() | faults.literals().keys())
    with tempfile.TemporaryDirectory() as folder:
        place = pathlib.Path(folder)
        (place / "literals").write_bytes(b"\n".join(literals) + b"\n")
        for size in (1, mib):
            write(place / "log", size << 20)
            grep = seconds(["grep", "-c", "-F", "-f", str(place / "literals"), str(place / "log")])
            ours = seconds([sys.executable, "-m", "fi_doctor", "explain", str(place / "log"), "-f", "json"])
            # Of the largest child until now, which grep never is.
            held = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
            yield f"{size} MiB: explain {ours:.2f} s with start-up, at most {held:.0f} MiB;"
            yield f"  grep -c -F -f with {len(literals)} literals {grep:.2f} s"


def write(path, size):
    """A log of so many bytes: healthy logs over and over, and a crash at its end."""
    block = b"".join(log.read_bytes() for log in HEALTHY)
    with path.open("wb") as file:
        for _ in range(max(0, size - len(CRASH)) // len(block)):
            file.write(block)
        file.write(CRASH)


def seconds(command):
    began = time.perf_counter()
    # Not to /dev/null: grep stops at the first line then.
    subprocess.run(command, stdout=subprocess.PIPE, check=False, cwd=ROOT)
    return time.perf_counter() - began


def estimate(corpus):
    score = module(corpus / "score.py")
    reports = [json.loads(line) for line in (corpus / "dev.jsonl").read_text().splitlines()]
    known = faults.load_all()
    seen = family = seen_of = of = 0
    for time_ in range(TIMES):
        folds = split(reports, time_)
        for fold in folds:
            ids = {report["id"] for report in fold}
            elsewhere = {report["cause"] for report in reports if report["id"] not in ids}
            aside = frozenset(one.id for one in known if one.learnt_from and ids.issuperset(one.learnt_from))
            for report in fold:
                if not report["output"]:
                    continue
                first = diagnosed(score.as_text(report), aside)
                of += 1
                family += first is not None and first.family == report["family"]
                if report["cause"] in elsewhere:
                    seen_of += 1
                    seen += first is not None and first.cause == report["cause"]
    yield f"{FOLDS} folds, {TIMES} times, the faults of a fold's reports put aside:"
    share = 100 * seen / max(1, seen_of)
    yield f"  cause right where it was seen in the other folds: {share:.0f} % of {seen_of / TIMES:.0f}"
    yield f"  family right over all: {100 * family / max(1, of):.0f} % of {of / TIMES:.0f}"


def split(reports, seed):
    every = sorted(reports, key=lambda report: report["id"])
    random.Random(seed).shuffle(every)
    return [every[at::FOLDS] for at in range(FOLDS)]


def diagnosed(text, aside):
    found = diagnose([Source("log", io.BytesIO(text.encode()))], left_out=aside)
    return found.diagnoses[0] if found.diagnoses else None


def module(path):
    spec = importlib.util.spec_from_file_location("score", path)
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


if __name__ == "__main__":
    main()
