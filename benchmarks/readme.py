"""Fills the generated blocks of README.md: the sample matrix, and the figures of the other benchmarks on this machine.

python benchmarks/readme.py [--python /venv/with/torch/bin/python] [--explain] [--chaos]

Figures that depend on the machine are left as they stand without the option that asks for them.
"""

import argparse
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).parents[1]
UPGRADE = "What other versions would mend"


def printed(*argv):
    done = subprocess.run([sys.executable, *argv], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout or sys.exit(f"{argv}: nothing was printed: {done.stderr}")


def fill(text, name, output):
    pattern = rf"(<!-- {name} -->\n```\n).*?(```\n<!-- /{name} -->)"
    return re.sub(pattern, lambda found: f"{found[1]}{output.rstrip()}\n{found[2]}", text, flags=re.DOTALL)


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--python", default="")
    arguments.add_argument("--explain", action="store_true", help="what `explain` costs, on 1 GiB too")
    arguments.add_argument("--chaos", action="store_true", help="faults, a soak and load: some minutes, no GPU")
    asked = arguments.parse_args()
    text = (ROOT / "README.md").read_text()
    sample, _, _ = printed("-m", "fi_doctor", "check", "--example", "h200").partition("\nFindings:\n")
    text = fill(text, "example", sample)
    _, title, rest = printed("-m", "fi_doctor", "check", "--example", "2xh200-flashinfer-0.5.3").partition(UPGRADE)
    text = fill(text, "upgrade", title + rest.partition("\n\n")[0])
    text = fill(text, "recorded", printed("benchmarks/recorded.py"))
    text = fill(text, "fleet", printed("benchmarks/fleet.py", "--show", "19"))
    text = fill(text, "builds", printed("benchmarks/builds.py"))
    text = fill(text, "selection", printed("benchmarks/selection.py", "summary"))
    if asked.explain:
        text = fill(text, "explain", printed("benchmarks/explain.py"))
    if asked.chaos:
        for name in ("chaos", "soak", "load"):
            text = fill(text, name, printed(f"benchmarks/{name}.py"))
    if asked.python:
        text = fill(text, "startup", printed("benchmarks/startup.py", "--python", asked.python))
        text = fill(text, "static", printed("benchmarks/static.py", "--python", asked.python))
    (ROOT / "README.md").write_text(text)


if __name__ == "__main__":
    main()
