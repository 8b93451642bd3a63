"""Reads what was measured on the machines in tests/machines, and writes it for --target (fi_doctor/knowledge/runs.py).

    python benchmarks/runs.py

Of each folder the worst that any of its checks saw of a cell. Machines that were made faulty on purpose say nothing of
a release and a GPU: they are left out.
"""

import lzma
import pathlib
import sys

import msgspec
from msgspec.structs import replace

from fi_doctor import knowledge, pipeline
from fi_doctor.diagnosis.findings import is_measured
from fi_doctor.knowledge import runs
from fi_doctor.model import Missing, Verdict
from fi_doctor.probing import catalog
from fi_doctor.reports import document

MACHINES = pathlib.Path(__file__).parents[1] / "tests" / "machines"
# A rank that was stopped, an nvcc that lies about its version, an architecture list of another GPU.
FAULTY = ("stopped-rank", "nvcc-says", "nvcc-put-right", "proved-arch-list", "proved-nvcc")
WORST = (Verdict.WRONG_RESULT, Verdict.BROKEN, Verdict.WORKS)


def read(folder, kb, specs):
    """The folder's machine; None where nothing of a GPU was measured."""
    rows, modules, costs = {}, {}, {}
    for path in sorted(folder.glob("*.json")):
        recorded = document.read(path.read_bytes(), path.name)
        report = pipeline.rejudge(recorded, replace(recorded.request, required=()), kb=kb, specs=specs)
        for row in report.features:
            cells = [cell for cell in row.cells if row.needs_gpu and is_measured(cell.verdict, cell.evidence)]
            for cell in cells:
                known = rows.setdefault(row.feature, {})
                known[cell.variant] = min(known.get(cell.variant, Verdict.WORKS), cell.verdict, key=WORST.index)
        for outcome in report.outcomes:
            for cell in outcome.cells:
                if cell.modules and cell.variant in rows.get(outcome.feature, {}):
                    modules.setdefault(outcome.feature, {})[cell.variant] = cell.modules
        for name, cost in report.builds.costs.items():
            if "." not in name and report.builds.modules.get(name) == "built":
                costs[name] = runs.Cost(objects=cost.objects, cpu_seconds=cost.cpu_seconds, peak_mib=cost.peak_job_mib)
    if not rows:
        return None
    facts = report.facts
    gpu = facts.gpus.gpus[0]
    torch = facts.packages["torch"]
    return runs.Run(
        machine=folder.name,
        gpu=gpu.name,
        sm=gpu.sm,
        flashinfer=facts.flashinfer.version,
        nvcc=facts.toolkit.gate_version,
        torch="" if isinstance(torch, Missing) else torch.version,
        rows=rows,
        modules=modules,
        costs=costs,
    )


def main():
    kb, specs = knowledge.load(), catalog.discover()
    folders = sorted(
        path for path in MACHINES.iterdir() if path.is_dir() and not any(word in path.name for word in FAULTY)
    )
    found = [run for folder in folders if (run := read(folder, kb, specs)) is not None]
    text = msgspec.json.encode(found, order="deterministic")
    runs.PATH.write_bytes(lzma.compress(text, format=lzma.FORMAT_XZ, preset=9))
    print(f"{len(found)} machines, {sum(len(run.rows) for run in found)} rows, {runs.PATH.stat().st_size} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
