"""The real command as a child process, and reports for it to judge, made of plain facts and outcomes."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys

import factory as make
import junitparser
import yaml
from msgspec.structs import replace

from fi_doctor import knowledge, pipeline
from fi_doctor.model import Depth, Ending, Request, Stage
from fi_doctor.probing import catalog, plan
from fi_doctor.reports import render

ROOT = pathlib.Path(__file__).parents[2]
FORMATS = (
    "console",
    "json",
    "yaml",
    "markdown",
    "junit",
    "github",
    "sarif",
    "html",
    "prometheus",
    "nfd",
    "termination-log",
)
CREATED = "2026-01-02T03:04:05+00:00"
BROKEN = "norm.rmsnorm"
LABELS = {"holds": 0, "fails": 1, "cannot-tell": 3}
HOLDS = "what was asked for holds"
OF_THE_START = re.compile(r"PYTHON|LANG|LC_|LD_")  # variables that the interpreter itself looks at
OF_THE_EXAMINED = ("PYTHONPATH", "LD_LIBRARY_PATH")


def environment(*, home, **changes):
    """A small environment; a change to None takes a variable away."""
    base = {"PATH": os.environ.get("PATH", os.defpath), "HOME": str(home), "LANG": "C.UTF-8", "PYTHONPATH": str(ROOT)}
    return {name: str(value) for name, value in {**base, **changes}.items() if value is not None}


class Command:
    """`python -m fi_doctor` in a folder of its own."""

    def __init__(self, folder, forked=None):
        """forked: what starts it where nothing is asked that only a process of its own can show."""
        self.folder = folder
        self._forked = forked
        self._home = folder

    def processes(self):
        """The processes of this test, and of no other that runs beside it: their environment names its folder."""
        return processes_with(f"THIS_TEST={self._home}")

    def argv(self, *args):
        return [sys.executable, "-m", "fi_doctor", *map(str, args)]

    def __call__(self, *args, env=None, data="", argv=None, of_examined=False, **options):
        """Run it to its end; stdout and stderr as text.

        of_examined: where PYTHONPATH and LD_LIBRARY_PATH lead matters to the examined interpreter alone.
        """
        environ = self._environment(env)
        of_start = [name for name in env or {} if not (of_examined and name in OF_THE_EXAMINED)]
        given = options.get("stdout", subprocess.PIPE)  # a descriptor can be handed over as well
        is_plain = not options or (options.keys() == {"stdout", "stderr"} and options["stderr"] == subprocess.PIPE)
        if self._forked and argv is None and is_plain and not any(map(OF_THE_START.match, of_start)):
            stdout = None if given == subprocess.PIPE else given if isinstance(given, int) else given.fileno()
            return self._forked(list(map(str, args)), environ, self.folder, data, stdout)
        return subprocess.run(
            argv or self.argv(*args),
            env=environ,
            cwd=self.folder,
            input=data,
            capture_output="stdout" not in options,
            text=True,
            timeout=120,
            **options,
        )

    def start(self, *args, env=None, argv=None, **options):
        """Start it and let it work; Ctrl-C reaches it even where the tests themselves ignore it."""
        return subprocess.Popen(
            argv or self.argv(*args),
            env=self._environment(env),
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),  # noqa: PLW1509
            **options,
        )

    def _environment(self, changes):
        return environment(home=self.folder, THIS_TEST=self._home, **(changes or {}))

    def report(self, name="report.json", **options):
        """The path of a report as `fi-doctor report` would have written it."""
        path = self.folder / name
        path.write_text(render(report(**options), path.suffix[1:]), encoding="utf-8")
        return path


def report(*, depth=Depth.RUN, broken=(), wrong=(), facts=None):
    """What a machine gives on which every probe does what it should, except the rows that are named."""
    facts = facts or make.facts()
    request = Request(depth=depth)
    kb, specs = shipped()
    planned = plan.plan(specs, facts, request)
    outcomes = tuple(outcome(one, broken=broken, wrong=wrong) for one in planned if one.is_tried)
    return pipeline.conclude(request, kb=kb, facts=facts, planned=planned, outcomes=outcomes, created=CREATED)


@functools.cache
def shipped():
    """The knowledge and the probes that ship, read once: both are frozen."""
    return knowledge.load(), catalog.discover()


def outcome(planned, *, broken, wrong):
    feature = planned.spec.feature
    ending, stage, detail = Ending.RETURNED, Stage.VERIFIED if planned.spec.checks_numbers else Stage.RAN, ""
    if planned.depth is Depth.BUILD:
        stage = Stage.BUILT
    if feature in broken:
        ending, stage, detail = Ending.RAISED, Stage.BUILT, "no kernel image is available"
    elif feature in wrong:
        ending, stage, detail = Ending.WRONG, Stage.RAN, "max error 0.5 over 0.01"
    cells = tuple(make.cell(ending, stage, variant, detail=detail) for variant in planned.variants)
    return make.outcome(planned.spec.id, cells=cells, feature=feature, sm=planned.sm)


def parsed(text, fmt):
    """What a machine format holds; the console is only asked for its exit line."""
    return json.loads(text) if fmt == "json" else yaml.load(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))


def code_of(text, fmt):
    """The exit code that a report names, in any format."""
    if fmt in ("json", "yaml"):
        return parsed(text, fmt)["gate"]["code"]
    if fmt == "junit":
        [holds] = [
            one for suite in junitparser.JUnitXml.fromstring(text.encode()) for one in suite if one.name == HOLDS
        ]
        return int(holds.result[0].type.split()[1]) if holds.result else 0
    if fmt == "nfd":
        return LABELS[re.search(r"^fi-doctor\.io/gate=(.*)", text, re.MULTILINE)[1]]
    pattern = {
        "console": r"^Exit (\d) \(",
        "markdown": r"^# fi-doctor: exit (\d),",
        "github": r"%3A exit (\d)%2C",
        "html": r"<b>Exit (\d)</b>",
        "sarif": r'^ *"exitCode": (\d)',
        "prometheus": r"^fi_doctor_gate_exit_code (\d)",
        "termination-log": r"\AExit (\d) \(",
    }
    return int(re.search(pattern[fmt], text, re.MULTILINE)[1])


def verdicts(text):
    return {row["feature"]: row["verdict"] for row in json.loads(text)["features"]}


def with_verdicts(done, verdict, code):
    """The same report as if an older knowledge had judged it."""
    rows = tuple(replace(row, verdict=verdict, why="as it was judged then") for row in done.features)
    return replace(done, features=rows, gate=replace(done.gate, code=code, reason="as it was judged then"))


def in_three_parts(stderr):
    """The last error on stderr: what, why, try; "" for what is not said."""
    parts = {"error": "", "why": "", "try": ""}
    for line in stderr.splitlines():
        word, colon, rest = line.strip().partition(": ")
        if colon and word in parts:
            parts[word] = rest
    return parts


LOOKS_BESIDE_ITSELF = "fi_doctor/probing/registered.py"  # for the probes, wherever links lead


def linked_package(folder, *changed):
    """The package and its probes as in a checkout; gives the folder to put on PYTHONPATH.

    changed: the files that the test writes to, which are copied. All else is links into the checkout, because two
    thousand files take a second to copy; new files may lie beside the package and among its probes.
    """
    place = folder / "copy"
    (place / "probes").mkdir(parents=True)
    for probe in (ROOT / "probes").glob("*.py"):
        (place / "probes" / probe.name).symlink_to(probe)
    (place / "pyproject.toml").symlink_to(ROOT / "pyproject.toml")
    _link(ROOT / "fi_doctor", place / "fi_doctor", {place / name for name in (LOOKS_BESIDE_ITSELF, *changed)})
    return place


def _link(source, target, changed):
    """What is compiled of a changed file is not to be written among what is compiled of the checkout."""
    if target in changed:
        shutil.copy(source, target)
    elif source.name == "__pycache__":  # of a folder with changed files
        target.mkdir()
        stems = {one.stem for one in changed if one.parent == target.parent}
        for one in source.glob("*.pyc"):
            if one.name.partition(".")[0] not in stems:
                (target / one.name).symlink_to(one)
    elif any(one.is_relative_to(target) for one in changed):
        target.mkdir()
        for one in source.iterdir():
            _link(one, target / one.name, changed)
    else:
        target.symlink_to(source)


def copied_package(folder):
    """The same as files of its own, for whoever cannot reach the checkout."""
    place = folder / "copy"
    # What is compiled already need not be for each copy; a name with more behind it is being written just now.
    shutil.copytree(ROOT / "fi_doctor", place / "fi_doctor", ignore=shutil.ignore_patterns("*.pyc.*"))
    shutil.copytree(ROOT / "probes", place / "probes", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", place)
    return place


def script(path, text):
    path.write_text(text, encoding="utf-8")
    path.chmod(0o755)
    return path


def processes_with(variable):
    """The processes whose environment holds NAME=VALUE."""
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and variable.encode() in (entry / "environ").read_bytes().split(b"\0"):
                found.append(int(entry.name))
    return found
