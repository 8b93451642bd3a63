"""Millions of inputs for every parser of outside data: how many were tried, and which were neither read nor refused.

    python benchmarks/fuzz.py [--runs N] [--seconds S] [--keep] [--jobs N] [--seed N] [PARSER ...]

Each parser of tests/fuzz/outside_data.py is tried in processes of its own, as many as --jobs says, which share its
inputs; guided by coverage where atheris is installed, else by chance. What fails is written below fuzz-failures/, once
for each place that raised; --keep adds the inputs that reached something new to tests/fuzz/corpus, the smallest first,
with which the tests begin.
"""

from __future__ import annotations

import argparse
import contextlib
import pathlib
import random
import re
import subprocess
import sys
import time
import traceback

ROOT = pathlib.Path(__file__).resolve().parents[1]
TESTS = ROOT / "tests"
CORPUS = TESTS / "fuzz" / "corpus"
MOST_KEPT, LARGEST_KEPT = 12, 1500  # inputs of a parser, and their bytes
LONGEST_S = 20  # of one input
DONE = re.compile(rb"Done (\d+) runs in (\d+) second")


def main(argv: list[str]) -> int:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("names", nargs="*")
    options.add_argument("--runs", type=int, default=1_000_000)
    options.add_argument("--seconds", type=int, default=60)
    options.add_argument("--keep", action="store_true")
    options.add_argument("--jobs", type=int, default=1)
    options.add_argument("--seed", type=int, default=0, help="of the first process; the next ones count on")
    options.add_argument("--one", help=argparse.SUPPRESS)
    options.add_argument("--folder", type=pathlib.Path, default=ROOT / "fuzz-failures")
    given = options.parse_args(argv)
    prepare()
    if given.one:
        return run_one(given)
    from outside_data import BY_NAME

    total = failures = 0
    print(f"{'parser':24} {'inputs':>10} {'s':>5} {'inputs/s':>9}  failures")
    for name in given.names or BY_NAME:
        inputs, seconds, failed = campaign(name, given)
        total, failures = total + inputs, failures + failed
        print(f"{name:24} {inputs:10} {seconds:5.0f} {inputs / max(seconds, 1e-9):9.0f}  {failed}", flush=True)
    print(f"{'all':24} {total:10} {'':5} {'':9}  {failures}")
    return 1 if failures else 0


def prepare() -> None:
    sys.path[:0] = [str(ROOT), str(TESTS), str(TESTS / "fuzz"), str(TESTS / "reports")]


def campaign(name: str, given: argparse.Namespace) -> tuple[int, float, int]:
    """Inputs, seconds, failures of one parser; a crash of a process itself is a failure."""
    folder = given.folder / name
    folder.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    own = ["--one", name, "--folder", str(folder), "--runs", str(-(-given.runs // given.jobs))]
    argv = [sys.executable, __file__, *own, "--seconds", str(given.seconds)]
    seeds = range(given.seed, given.seed + given.jobs)
    running = [subprocess.Popen([*argv, "--seed", str(seed)], cwd=ROOT, stderr=subprocess.PIPE) for seed in seeds]
    inputs = 0
    for process in running:
        said = process.communicate()[1]
        found = DONE.search(said)
        if found is None or process.returncode:
            (folder / f"process-{process.pid}.txt").write_bytes(said[-20_000:])
        inputs += int(found[1]) if found else 0
    seconds = time.monotonic() - began
    if given.keep:
        keep(name, folder / "corpus")
    return inputs, seconds, sum(1 for path in folder.iterdir() if path.is_file() and path.suffix != ".why")


def run_one(given: argparse.Namespace) -> int:
    """Try a parser in this process until one of the two bounds."""
    name, folder = given.one, given.folder
    try:
        import atheris
    except ImportError:
        return by_chance(given)
    with atheris.instrument_imports(include=["fi_doctor"]):
        import fuzz_seeds
        import mutating
        from outside_data import BY_NAME
    parser, target = BY_NAME[name], Target(BY_NAME[name], folder)
    corpus = folder / "corpus"
    corpus.mkdir(exist_ok=True)
    for number, data in enumerate((*parser.seeds, *fuzz_seeds.kept(name))):
        (corpus / f"seed-{number}").write_bytes(data)

    def mutate(data: bytes, most: int, seed: int) -> bytes:
        return mutating.changed(bytes(data), seed)[:most] if seed % 2 else atheris.Mutate(data, most)

    bounds = [f"-runs={given.runs}", f"-max_total_time={given.seconds}", f"-timeout={LONGEST_S}", "-rss_limit_mb=4096"]
    words = [*bounds, f"-seed={given.seed}", f"-artifact_prefix={folder}/", "-max_len=65536", str(corpus)]
    atheris.Setup([sys.argv[0], *words], target, custom_mutator=mutate)
    atheris.Fuzz()
    return 0


def by_chance(given: argparse.Namespace) -> int:
    """The same without coverage."""
    import fuzz_seeds
    import mutating
    from outside_data import BY_NAME

    parser, target = BY_NAME[given.one], Target(BY_NAME[given.one], given.folder)
    corpus = (*parser.seeds, *fuzz_seeds.kept(given.one))
    began, chance, number = time.monotonic(), random.Random(f"{given.one} {given.seed}"), 0
    while number < given.runs and time.monotonic() - began < given.seconds:
        target(mutating.changed(chance.choice(corpus), chance.getrandbits(32)))
        number += 1
    print(f"Done {number} runs in {time.monotonic() - began:.0f} second(s)", file=sys.stderr)
    return 0


class Target:
    """The parser, which writes down what failed and goes on."""

    def __init__(self, parser: object, folder: pathlib.Path) -> None:
        self._parser = parser
        self._folder = folder
        self._seen: set[str] = set()

    def __call__(self, data: bytes) -> None:
        """Try one input."""
        import mutating

        try:
            mutating.tried(self._parser, bytes(data))
        except Exception as error:  # noqa: BLE001 - that is what is looked for
            frame = traceback.extract_tb(error.__traceback__)[-1]
            place = f"{type(error).__name__}-{pathlib.Path(frame.filename).name}-{frame.lineno}"
            if place not in self._seen:
                self._seen.add(place)
                (self._folder / place).write_bytes(data)
                (self._folder / f"{place}.why").write_text(traceback.format_exc(), encoding="utf-8")


def keep(name: str, corpus: pathlib.Path) -> None:
    """The smallest inputs that reached something new, beside those that are kept already."""
    there = CORPUS / name
    new = [
        path for path in corpus.glob("*") if not path.name.startswith("seed-") and path.stat().st_size <= LARGEST_KEPT
    ]
    there.mkdir(parents=True, exist_ok=True)
    known = len(list(there.iterdir()))
    for path in sorted(new, key=lambda one: (one.stat().st_size, one.name))[-max(0, MOST_KEPT - known) :]:
        with contextlib.suppress(FileExistsError), (there / path.name[:12]).open("xb") as file:
            file.write(path.read_bytes())
    if not any(there.iterdir()):
        there.rmdir()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
