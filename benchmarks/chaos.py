"""Faults that are done to real checks, and what came of them: each row of tests/chaos/faults.py, tried.

    python benchmarks/chaos.py [--verbose]

Prints how many were tried and survived, rows that were right, and what was left behind; exits 1 unless all were
survived. What this machine does not allow is counted as not tried, with its reason. --verbose: each fault as it ends.
"""

import argparse
import pathlib
import platform
import sys
import tempfile
import textwrap

ROOT = pathlib.Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / folder) for folder in ("tests/chaos", "tests/cli", "tests", ".")]

import faults  # noqa: E402 - tests are no package
import machine  # noqa: E402


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--verbose", action="store_true")
    asked = arguments.parse_args()
    refused, complaints = {}, {}
    with tempfile.TemporaryDirectory(prefix="chaos-") as folder:
        place = pathlib.Path(folder)
        place.chmod(0o755)
        server = machine.Server(place / "server")
        for number, fault in enumerate(faults.ALL):
            if reason := fault.needs():
                refused[fault.name] = reason
                continue
            complaints[fault.name] = machine.tried(fault, machine.Machine(place / str(number), server))
            if asked.verbose:
                said = "; ".join(one.words for one in complaints[fault.name]) or "survived"
                print(f"{fault.name}: {said}", file=sys.stderr, flush=True)
        server.close()
    return told(complaints, refused)


def told(complaints, refused):
    """Print it; the exit code."""
    by_name = {fault.name: fault for fault in faults.ALL}
    rows = sum(len(by_name[name].rows or ()) + len(machine.SOUND.keys() - (by_name[name].rows or {}).keys())
               for name in complaints if by_name[name].rows is not None)  # fmt: skip
    total = machine.counted(one for found in complaints.values() for one in found)
    survived = sum(not found for found in complaints.values())
    print(f"Linux {platform.release().split('-')[0]}, Python {platform.python_version()}, no GPU")
    print(f"faults tried         {len(complaints)}")
    print(f"faults survived      {survived}")
    print(f"rows right           {rows - int(total['rows'])} of {rows}")
    print(f"faults not named     {int(total['named'])}")
    print(f"exit codes wrong     {int(total['code'])}")
    print(f"orphans              {int(total['orphans'])}")
    print(f"files left           {int(total['files'])}")
    print(f"seconds over budget  {total['seconds']:.1f}")
    print(f"not tried here       {len(refused)}")
    for name, reason in refused.items():
        print(textwrap.fill(f"{name}: {reason}", 100, initial_indent="  ", subsequent_indent="    "))
    for name, found in complaints.items():
        for one in found:
            print(textwrap.fill(f"{name}: {one.kind}: {one.words}", 100, initial_indent="  ", subsequent_indent="    "))
    return int(survived < len(complaints))


if __name__ == "__main__":
    sys.exit(main())
