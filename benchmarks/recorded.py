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
            if report["request"]["features"]:
                continue  # only some rows were asked for
            facts = report["facts"]
            seen = len(facts["gpus"]["cuda_order"])
            gpus = f"{seen} x {facts['gpus']['gpus'][0]['name']}"
            where = f"{gpus}, {facts['system']['cpus']} CPUs, FlashInfer {facts['flashinfer']['version']}"
            modules = len(report.get("builds", {}).get("modules", {}))
            built = f", {modules} modules in {report['builds']['seconds']:.0f} s of it" if modules else ""
            print(f"{where}, {path.stem}: {len(report['outcomes'])} probes in {report['seconds']:.0f} s{built}")


if __name__ == "__main__":
    main()
