"""Writes what ships of what was really built or run (fi_doctor/knowledge/atlas.json).

    python benchmarks/atlas_data.py [--rows FILE.jsonl --name NAME]

--rows: what benchmarks/atlas.py wrote on some machine; it is kept as tests/atlas/NAME.jsonl.xz, as it is. What ships is
made of those files and of the reports below tests/machines: what their builds cost and how far their probes came.
Machines that were made faulty on purpose say nothing of a release and a GPU: they are left out.
"""

import argparse
import json
import lzma
import pathlib

import msgspec
from atlas_record import LACKS

from fi_doctor.diagnosis import cells
from fi_doctor.knowledge import atlas
from fi_doctor.model import CellOutcome, Ending, Stage, Verdict

TESTS = pathlib.Path(__file__).parents[1] / "tests"
ROWS = TESTS / "atlas"
_STATES = {"built": "compiled", "failed": "failed"}
# A rank that was stopped, an nvcc that lies about its version, an architecture list of another GPU.
FAULTY = ("stopped-rank", "nvcc-says", "nvcc-put-right", "proved-arch-list", "proved-nvcc")
_COUNTS = (Stage.BUILT, Stage.RAN, Stage.VERIFIED)  # stages after which something of ours was tried


class Named(msgspec.Struct):
    """A toolkit's nvcc, a package, a GPU, a machine; what is not known is a record that says why."""

    version: str | dict = ""
    name: str = ""
    architectures: list[str] | dict = []
    nvcc: "Named | None" = None
    jit: "Named | None" = None
    cpus: int = 0
    sm: int = 0


class Gpus(msgspec.Struct):
    """The GPUs."""

    gpus: list[Named] | dict


class Facts(msgspec.Struct):
    """What was read off the machine."""

    flashinfer: Named
    toolkit: Named
    gpus: Gpus
    system: Named


class Cost(msgspec.Struct):
    """What one module took."""

    cpu_seconds: float
    objects: int
    least_seconds: float = 0.0
    peak_job_mib: int = 0


class Builds(msgspec.Struct):
    """What was compiled."""

    jobs: int = 0
    modules: dict[str, str] = {}
    costs: dict[str, Cost] = {}


class Outcome(msgspec.Struct):
    """How one probe ended."""

    feature: str
    sm: int | dict
    cells: list[CellOutcome]


class Recorded(msgspec.Struct):
    """Of a report what is needed here: reading the whole of all takes half a second."""

    created: str
    facts: Facts
    outcomes: list[Outcome]
    builds: Builds = msgspec.field(default_factory=Builds)


def made():
    """The whole of it, from the files."""
    places, compiled, ran = {}, set(), set()
    for path in sorted((TESTS / "machines").glob("*/*.json")):
        if any(word in path.parent.name for word in FAULTY):
            continue
        report = msgspec.json.decode(path.read_bytes(), type=Recorded)
        built, tried = of_report(report, path.parent.name, places)
        compiled |= built
        ran |= tried
    for path in sorted(ROWS.glob("*.jsonl.xz")):
        for line in lzma.decompress(path.read_bytes()).splitlines():
            row = json.loads(line)
            if not LACKS.search(row["error"]):
                compiled.add(of_row(row, path.name.removesuffix(".jsonl.xz"), places))
    order = msgspec.structs.astuple
    return atlas.Atlas(tuple(places), tuple(sorted(compiled, key=order)), tuple(sorted(ran, key=order)))


def of_row(row, name, places):
    machine = row["machine"]
    place = atlas.Place(name, cpu=machine["cpu"], cores=machine["cores"], jobs=machine["jobs"], host=machine["host"])
    error = row["error"] if row["outcome"] != "compiled" else ""
    return atlas.Compiled(
        *(row[key] for key in ("flashinfer", "module", "nvcc", "arch", "outcome")), error[:160], row["units"],
        row["cpu_s"], row["longest_s"], row["peak_mib"], places.setdefault(place, len(places)), row["at"][:10],
    )  # fmt: skip


def of_report(report, name, places):
    """What was compiled as a whole, and how far each variant came that was tried."""
    facts, builds = report.facts, report.builds
    package, nvcc, gpus = facts.flashinfer, facts.toolkit.jit and facts.toolkit.jit.nvcc, facts.gpus.gpus
    if not (isinstance(package.version, str) and isinstance(package.architectures, list) and isinstance(gpus, list)):
        return set(), set()
    place = atlas.Place(name, gpu=gpus[0].name, sm=gpus[0].sm, cores=facts.system.cpus, jobs=builds.jobs)
    place = places.setdefault(place, len(places))
    version = nvcc.version if nvcc and isinstance(nvcc.version, str) else ""
    key, day = (version, package.architectures[0]), report.created[:10]
    compiled = {
        atlas.Compiled(
            package.version, module, *key, _STATES[word], detail.strip()[:160], cost.objects,
            cost.cpu_seconds, cost.least_seconds, cost.peak_job_mib, place, day,
        )
        for module, cost in builds.costs.items()
        for word, _, detail in [builds.modules.get(module, "").partition(":")]
        if word in _STATES and "." not in module  # a part of a module has a dot in its name
    }  # fmt: skip
    ran = {
        atlas.Ran(package.version, outcome.feature, cell.variant, *key, told, cell.modules, place, day)
        for outcome in report.outcomes
        for cell in outcome.cells
        if isinstance(outcome.sm, int) and (told := of_cell(cell))
    }
    return compiled, ran


def of_cell(cell):
    """How far it came or how it ended; "" where nothing of ours was tried, or a failure is none of the kernel."""
    verdict = cells.judge_outcome(cell, builds=True, rest="", has_gpu=True).verdict
    if verdict is Verdict.UNSUPPORTED:
        return "refused"
    if cell.ending is Ending.RETURNED:
        return cell.stage.value if cell.stage in _COUNTS else ""
    return cell.ending.value if verdict.is_failure else ""


def written(found):
    """A line for each row, so that a change shows what changed."""
    parts = [
        f'"{name}": [\n' + ",\n".join(msgspec.json.encode(row).decode() for row in getattr(found, name)) + "\n]"
        for name in found.__struct_fields__
    ]
    return ("{\n" + ",\n".join(parts) + "\n}\n").encode()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=pathlib.Path)
    parser.add_argument("--name")
    arguments = parser.parse_args()
    if arguments.rows:
        ROWS.mkdir(exist_ok=True)
        (ROWS / f"{arguments.name}.jsonl.xz").write_bytes(lzma.compress(arguments.rows.read_bytes()))
    atlas.PATH.write_bytes(written(made()))
    shipped = atlas.load()
    print(f"{len(shipped.places)} places, {len(shipped.compiled)} modules compiled, {len(shipped.ran)} variants run")


if __name__ == "__main__":
    main()
