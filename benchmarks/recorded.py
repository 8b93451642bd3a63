"""Wall seconds of each recorded check, with an empty JIT cache and with a full one.

    python benchmarks/recorded.py

Reads tests/machines/*/{cold,warm}.json, which were written on real machines; nothing is run.
"""

import json
import pathlib

MACHINES = pathlib.Path(__file__).parents[1] / "tests" / "machines"


def main():
    for folder in sorted(path for path in MACHINES.iterdir() if path.is_dir()):
        for state in ("cold", "warm"):
            report = json.loads((folder / f"{state}.json").read_text())
            facts = report["facts"]
            gpus = ", ".join(gpu["name"] for gpu in facts["gpus"]["gpus"])
            where = f"{gpus}, {facts['system']['cpus']} CPUs, FlashInfer {facts['flashinfer']['version']}"
            print(f"{where}, {state}: {len(report['features'])} rows in {report['seconds']:.0f} s")


if __name__ == "__main__":
    main()
