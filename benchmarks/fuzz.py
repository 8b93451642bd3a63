"""Millions of inputs for every parser of outside data: how many were tried, and which were neither read nor refused.

    python benchmarks/fuzz.py [--runs N] [--seconds S] [--keep] [PARSER ...]

Each parser of tests/fuzz/outside_data.py is tried in a process of its own, guided by coverage where atheris is
installed, else by chance. What fails is written below fuzz-failures/, once for each place that raised; --keep adds
the inputs that reached something new to tests/fuzz/corpus, the smallest first, with which the tests begin.
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
    options.add_argument("--one", help=argparse.SUPPRESS)
    options.add_argument("--folder", type=pathlib.Path, default=ROOT / "fuzz-failures")
    given = options.parse_args(argv)
    prepare()
    if given.one:
        return run_one(given.one, given.runs, given.seconds, given.folder)
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
    """Inputs, seconds, failures of one parser; a crash of the process itself is a failure."""
    folder = given.folder / name
    folder.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    argv = [sys.executable, __file__, "--one", name, "--folder", str(folder)]
    done = subprocess.run(
        [*argv, "--runs", str(given.runs), "--seconds", str(given.seconds)], cwd=ROOT, capture_output=True, check=False
    )
    seconds = time.monotonic() - began
    found = DONE.search(done.stderr)
    if found is None or done.returncode:
        (folder / "process.txt").write_bytes(done.stderr[-20_000:])
    if given.keep:
        keep(name, folder / "corpus")
    failed = sum(1 for path in folder.iterdir() if path.is_file() and path.suffix != ".why")
    return int(found[1]) if found else 0, seconds, failed


def run_one(name: str, runs: int, seconds: int, folder: pathlib.Path) -> int:
    """Try a parser in this process until one of the two bounds."""
    try:
        import atheris
    except ImportError:
        return by_chance(name, runs, seconds, folder)
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

    words = [f"-runs={runs}", f"-max_total_time={seconds}", f"-timeout={LONGEST_S}", f"-artifact_prefix={folder}/"]
    atheris.Setup(
        [sys.argv[0], *words, "-rss_limit_mb=4096", "-max_len=65536", str(corpus)], target, custom_mutator=mutate
    )
    atheris.Fuzz()
    return 0


def by_chance(name: str, runs: int, seconds: int, folder: pathlib.Path) -> int:
    """The same without coverage."""
    import fuzz_seeds
    import mutating
    from outside_data import BY_NAME

    parser, target = BY_NAME[name], Target(BY_NAME[name], folder)
    corpus = (*parser.seeds, *fuzz_seeds.kept(name))
    began, chance, number = time.monotonic(), random.Random(name), 0
    while number < runs and time.monotonic() - began < seconds:
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
