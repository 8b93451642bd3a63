"""Wall seconds of each recorded check, with an empty JIT cache and with a full one.

    python benchmarks/recorded.py

Reads the recordings below tests/machines, which were written on real machines; nothing is run.
"""

import json
import pathlib

MACHINES = pathlib.Path(__file__).parents[1] / "tests" / "machines"


def main():
    for folder in sorted(path for path in MACHINES.iterdir() if path.is_dir()):
        for path in sorted(folder.glob("*.json")):
            report = json.loads(path.read_text())
            selected = ", selected rows" if report["request"]["features"] else ""
            facts = report["facts"]
            seen = len(facts["gpus"]["cuda_order"])
            gpus = f"{seen} x {facts['gpus']['gpus'][0]['name']}"
            where = f"{gpus}, {facts['system']['cpus']} CPUs, FlashInfer {facts['flashinfer']['version']}{selected}"
            modules = len(report.get("builds", {}).get("modules", {}))
            built = f", {modules} modules in {report['builds']['seconds']:.0f} s of it" if modules else ""
            probes = f"{len(report['outcomes'])} probes in {report['seconds']:.0f} s"
            print(f"{where}, {path.stem}: {probes}{built}{imports(report)}")


def imports(report):
    """How often torch and FlashInfer were imported: once for all forked probes, and in each fresh interpreter."""
    ways = [outcome.get("started", "") for outcome in report["outcomes"]]
    fresh, forked = sum("fresh" in way for way in ways), sum("forked" in way for way in ways)
    number = fresh + (forked > 0)
    return f", imported {'once' if number == 1 else f'{number} times'}" if number else ""


if __name__ == "__main__":
    main()
