"""Fills the generated blocks of README.md and docs/: samples, and the figures of the other benchmarks on this machine.

python benchmarks/readme.py [--python /venv/with/torch/bin/python] [--explain] [--chaos]

Figures that depend on the machine are left as they stand without the option that asks for them.
"""

import argparse
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).parents[1]
SAMPLE_ENDS = "\nattention.fp8_kv"
LOST = "\nWould be lost"
UPGRADE = "What other versions would mend"


def printed(*argv):
    done = subprocess.run([sys.executable, *argv], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout or sys.exit(f"{argv}: nothing was printed: {done.stderr}")


def fill(name, output):
    """The block of that name, which stands on one page."""
    pattern = re.compile(rf"(<!-- {name} -->\n```\n).*?(```\n<!-- /{name} -->)", re.DOTALL)
    [page] = [page for page in (ROOT / "README.md", *(ROOT / "docs").glob("*.md")) if pattern.search(page.read_text())]
    page.write_text(pattern.sub(lambda found: f"{found[1]}{output.rstrip()}\n{found[2]}", page.read_text()))


def on_gpu(folder):
    """What was printed on that machine."""
    said = [path.read_text().rstrip() for path in (folder / "summary.txt", folder / "soak.txt") if path.exists()]
    return "\n".join([f"{folder.name}:", *said])


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--python", default="")
    arguments.add_argument("--explain", action="store_true", help="what `explain` costs, on 1 GiB too")
    arguments.add_argument("--chaos", action="store_true", help="faults, a soak and load: some minutes, no GPU")
    asked = arguments.parse_args()
    sample, _, _ = printed("-m", "fi_doctor", "check", "--example", "h200").partition(SAMPLE_ENDS)
    fill("example", sample)
    _, title, rest = printed("-m", "fi_doctor", "check", "--example", "2xh200-flashinfer-0.5.3").partition(UPGRADE)
    fill("upgrade", title + rest.partition("\n\n")[0])
    words = ("--to", "b200,vllm=0.33.0,driver=570", "--require", "moe.bf16")
    begins, _, _ = printed("-m", "fi_doctor", "plan", "--example", "2xh200-flashinfer-0.5.3", *words).partition(LOST)
    fill("plan", begins)
    fill("recorded", printed("benchmarks/recorded.py"))
    fill("fleet", printed("benchmarks/fleet.py", "--show", "19"))
    fill("builds", printed("benchmarks/builds.py"))
    fill("selection", printed("benchmarks/selection.py", "summary"))
    fill("chaos-gpu", "\n".join(map(on_gpu, sorted((ROOT / "tests/chaos/gpu").glob("h200-*")))))
    if asked.explain:
        fill("explain", printed("benchmarks/explain.py"))
    if asked.chaos:
        for name in ("chaos", "soak", "load"):
            fill(name, printed(f"benchmarks/{name}.py"))
    if asked.python:
        fill("startup", printed("benchmarks/startup.py", "--python", asked.python))
        fill("static", printed("benchmarks/static.py", "--python", asked.python))


if __name__ == "__main__":
    main()
