"""`fi-doctor lock` and `check --locked` as commands, on a machine with a fake NVML and a real FlashInfer's Python."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import textwrap
import venv

import forking
import msgspec
import pytest
from cli_command import ROOT, Command, environment, in_three_parts, outcome, script, shipped
from msgspec.structs import replace
from seeded_secrets import ENVIRON, PASSWORD, TOKEN, leaked

from fi_doctor import pipeline
from fi_doctor.model import Depth, Report, Request
from fi_doctor.probing import plan
from fi_doctor.reports import render

VERSION = "0.5.3"
MARKED = """
from pathlib import Path
Path({mark!r}).write_text("imported")
__version__ = "2.14.0"
"""
# A driver says when it is loaded: the first thing that a CUDA context needs.
LOADED = """
#include <stdio.h>
#include <stdlib.h>
__attribute__((constructor)) static void loaded(void) { fclose(fopen(getenv("FAKE_CUDA_MARK"), "w")); }
"""
KEPT = ("import.", "norm.", "activation.", "sampling.")
HEAD = """import os
__version__ = {version!r}
if os.path.exists(os.path.join(os.path.dirname(__file__), "new.py")):
"""
CACHED = ("norm", "silu_and_mul", "sampling", "page")


class Machine:
    """An installation, the environment that leads to it, and the command."""

    def __init__(self, folder, doctor, wheel, drivers):
        self.folder, self.drivers = folder, drivers
        self.site = folder / "site"
        self.lock = folder / "fi-doctor.lock"
        self.marks = {name: folder / f"{name}.mark" for name in ("torch", "cuda")}
        self.python = ()  # options of every report
        self._doctor = doctor
        shutil.copytree(wheel, self.site / "flashinfer", ignore=shutil.ignore_patterns("__pycache__", "data"))
        _importable(self.site / "flashinfer")
        (self.site / "torch").mkdir()
        (self.site / "torch" / "__init__.py").write_text(MARKED.format(mark=str(self.marks["torch"])))
        (self.site / "torch" / "version.py").write_text("cuda = '13.0'\n__version__ = '2.14.0'\n")
        for name, version in (("torch", "2.14.0"), ("flashinfer_python", VERSION)):
            metadata = self.site / f"{name}-{version}.dist-info" / "METADATA"
            metadata.parent.mkdir()
            metadata.write_text(f"Metadata-Version: 2.1\nName: {name.replace('_', '-')}\nVersion: {version}\n")
        self.ops = folder / "ws/.cache/flashinfer" / VERSION / "90a" / "cached_ops"
        for name in CACHED:
            (self.ops / name).mkdir(parents=True)
            (self.ops / name / f"{name}.so").write_bytes(b"\x7fELF" + name.encode())
        self.env = {
            "PYTHONPATH": f"{self.site}{os.pathsep}{ROOT}",
            "LD_LIBRARY_PATH": f"{drivers}:/opt/{PASSWORD}",
            "FAKE_CUDA_MARK": str(self.marks["cuda"]),
            "FLASHINFER_WORKSPACE_BASE": str(folder / "ws"),
            "CUDA_VISIBLE_DEVICES": "GPU-11111111-2222-3333-4444-555555555555",
            "FAKE_CUDA_SEES": "0",
            "XDG_CACHE_HOME": str(folder / "memory"),
            **ENVIRON,  # secrets, as a server has them
            # What a report has of each: a check looks at no other rows, which would be measured.
            "FI_DOCTOR_FEATURE": ",".join(f"{family}*" for family in KEPT),
        }

    def __call__(self, *words, argv=None, **changes):
        return self._doctor(*words, argv=argv, env={**self.env, **changes}, of_examined=True)

    def report(self, name="report.json", **changes):
        """What would have been measured here, with every probe as it should end."""
        done = self("report", "--depth", "static", "--json", "-q", *self.python)
        assert done.returncode == 0, done.stderr
        facts = msgspec.json.decode(done.stdout, type=Report).facts
        kb, specs = shipped()
        request = Request(depth=Depth.RUN)
        planned = plan.plan(specs, facts, request)
        outcomes = tuple(
            loaded(one, outcome(one, broken=changes.get("broken", ()), wrong=()))
            for one in planned
            if one.is_tried and one.spec.feature.startswith(KEPT)
        )
        made = pipeline.conclude(
            request, kb=kb, facts=facts, planned=planned, outcomes=outcomes, created=pipeline.now()
        )
        path = self.folder / name
        path.write_text(render(made, "json"), encoding="utf-8")
        self.unmark()
        return path

    def examined_in_a_venv(self):
        """From now on the packages are those of another interpreter than fi-doctor's."""
        folder = self.folder / "venv"
        venv.create(folder, symlinks=True)
        [packages] = folder.glob("lib/python*/site-packages")
        (packages / "examined.pth").write_text(f"{self.site}\n")
        self.env["PYTHONPATH"] = str(ROOT)
        self.python = ("--python", folder / "bin" / "python")

    def locked(self, **changes):
        done = self("lock", "--from", self.report(**changes))
        assert done.returncode == 0, done.stderr
        self.unmark()  # a lock asks what the imports load
        return done

    def unmark(self):
        for mark in self.marks.values():
            mark.unlink(missing_ok=True)


def _importable(package):
    """Have the package imported without what it imports, for which this torch is too little, unless new.py is there."""
    init = package / "__init__.py"
    whole = textwrap.indent(init.read_text(), "    ")
    init.write_text(HEAD.format(version=VERSION) + whole)


def loaded(planned, outcome):
    """The outcome, with its module from the cache."""
    source = {"module_from": "cache", "modules": (planned.spec.module,)} if planned.spec.module else {}
    return replace(outcome, cells=tuple(replace(cell, **source) for cell in outcome.cells))


@pytest.fixture(scope="module")
def drivers(tmp_path_factory):
    """A folder with a driver."""
    folder = tmp_path_factory.mktemp("drivers")
    sources = {
        "libnvidia-ml.so.1": (ROOT / "tests/fake_nvml/nvml.c").read_text(),
        "libcuda.so.1": (ROOT / "tests/fake_nvml/cuda.c").read_text() + LOADED,
    }
    for library, text in sources.items():
        source = folder / f"{library}.c"
        source.write_text(text)
        subprocess.run(["cc", "-shared", "-fPIC", "-o", folder / library, source], check=True)
    return folder


@pytest.fixture(scope="module")
def started(drivers, tmp_path_factory):
    """What starts the command with that driver: a process looks at LD_LIBRARY_PATH when it starts."""
    made = forking.Forked(environment(home=tmp_path_factory.mktemp("home"), LD_LIBRARY_PATH=drivers))
    yield made
    made.close()


@pytest.fixture
def machine(tmp_path, started, unpacked, drivers):
    return Machine(tmp_path, Command(tmp_path, started), unpacked(VERSION), drivers)


@pytest.fixture(scope="module")
def _locked_once(tmp_path_factory, started, unpacked, drivers):
    folder = tmp_path_factory.mktemp("locked")
    made = Machine(folder, Command(folder, started), unpacked(VERSION), drivers)
    made.locked()
    return made


@pytest.fixture
def locked(_locked_once):
    """A machine with a lock, for tests that change nothing of either."""
    _locked_once.unmark()
    return _locked_once


def rows(done):
    return {row["feature"]: row for row in json.loads(done.stdout)["features"]}


def test_a_locked_check_gives_the_locked_verdicts_without_cuda_and_without_torch(locked):
    done = locked("check", "--locked", "-f", "json")
    assert done.returncode == 0, done.stderr
    assert not locked.marks["torch"].exists()
    assert not locked.marks["cuda"].exists()
    row = rows(done)["norm.rmsnorm"]
    assert (row["verdict"], row["evidence"], bool(row["locked"])) == ("works", "verified", True)
    assert row["why"].startswith(f"locked {row['locked']}: ")
    # The marks tell: a check without a lock asks CUDA, and the probe of the import imports torch.
    locked("check", "--depth", "static")
    assert locked.marks["cuda"].exists()
    locked("check", "--feature", "import.torch")
    assert locked.marks["torch"].exists()


def test_no_lock_holds_a_secret_nor_what_is_said_of_another_one(locked):
    text = locked.lock.read_text()
    assert leaked(text) == []
    assert "=" not in json.loads(text)["inputs"]["variable:LD_LIBRARY_PATH"]  # its digest
    done = locked("check", "--locked", "--frozen", LD_LIBRARY_PATH=f"{locked.drivers}:/opt/{TOKEN}")
    assert "LD_LIBRARY_PATH" in done.stderr
    assert leaked(done.stdout + done.stderr) == []


def test_the_command_itself_imports_nothing_that_is_examined(locked):
    code = (
        "import sys; sys.argv[1:] = ['check', '--locked']; import fi_doctor.cli as cli\n"
        "code = cli.run(sys.argv[1:]); found = {'torch', 'flashinfer', 'vllm', 'numpy', 'triton'} & set(sys.modules)\n"
        "print(code, sorted(found), file=sys.stderr)"
    )
    done = locked(argv=[sys.executable, "-c", code])
    assert done.stderr.splitlines()[-1] == "0 []"


def test_every_format_has_the_code_that_the_rows_give(locked, machine):
    machine.locked(broken=("sampling.top_k_top_p",))
    for one, code in ((locked, 0), (machine, 1)):
        for form in ("console", "json", "yaml"):
            done = one("check", "--locked", "-f", form)
            assert (form, done.returncode, "locked" in done.stdout) == (form, code, True)


def test_formats_and_the_policy_are_those_of_a_check(locked):
    (locked.folder / "gate.toml").write_text(
        'format = ["console", "junit:out.xml", "markdown:out.md"]\n[require]\n"norm.rmsnorm" = "verified"\n'
    )
    done = locked("check", "--locked", "--config", "gate.toml", "--explain-gate", COLUMNS=200)
    assert done.returncode == 0, done.stderr
    day = json.loads(locked.lock.read_text())["rows"][0]["measured"][:10]
    told = done.stderr.splitlines()
    assert f"gate: yes          norm.rmsnorm: works, verified, full (gate.toml: require): locked {day}" in told
    assert told[-1].startswith("fi-doctor: ")
    assert "of these locked" in told[-1]
    for name in ("out.xml", "out.md"):
        assert f"locked {day}" in (locked.folder / name).read_text()
    both = locked("check", "--locked", "--no-config", "-f", "github", "-f", "json:out.json")
    assert (both.returncode, "::notice title=fi-doctor%3A exit 0%2C" in both.stdout) == (0, True)
    assert json.loads((locked.folder / "out.json").read_text())["gate"]["code"] == 0


def test_where_a_policy_lets_nothing_run_what_changed_is_unknown(machine):
    machine.locked()
    policy, depths = machine.folder / "fi-doctor.toml", ("static", "build")
    for depth in depths:
        policy.write_text(f'depth = "{depth}"\n')
        assert (depth, machine("check", "--locked").returncode) == (depth, 0)
    (machine.ops / "sampling" / "sampling.so").write_bytes(b"\x7fELF another")
    for depth in depths:
        policy.write_text(f'depth = "{depth}"\n')
        done = machine("check", "--locked")
        assert (depth, done.returncode, "measured again" in done.stderr) == (depth, 3, False)
        typed = machine("check", "--locked", "--no-config", "--depth", depth)
        assert (depth, typed.returncode, "measured again" in typed.stderr) == (depth, 3, False)
    refused = machine("check", "--locked", "--no-config", FI_DOCTOR_DEPTH="deep")
    assert (refused.returncode, "FI_DOCTOR_DEPTH" in in_three_parts(refused.stderr)["error"]) == (2, True)


def test_the_console_says_locked_beside_the_evidence_and_among_what_was_judged(locked):
    lines = locked("check", "--locked").stdout
    assert "verified (locked)" in lines
    assert " rows locked 20" in lines


def test_frozen_names_what_changed_and_cannot_tell(machine):
    machine.locked()
    (machine.ops / "sampling" / "sampling.so").write_bytes(b"\x7fELF another")
    done = machine("check", "--locked", "--frozen", "-f", "json")
    assert done.returncode == 3
    found = rows(done)
    assert (found["sampling.top_k_top_p"]["verdict"], found["norm.rmsnorm"]["verdict"]) == ("unknown", "works")
    assert "cache:sampling" in found["sampling.top_k_top_p"]["why"]
    assert "not as it was locked: cache:sampling" in done.stderr
    last = done.stderr.splitlines()[-1]
    assert "sampling.top_k_top_p on SM90 is unknown: since it was locked: cache:sampling" in last
    assert "required" not in last
    assert not machine.marks["cuda"].exists()


def test_what_changed_is_measured_again_and_only_that(machine):
    machine.locked()
    (machine.site / "flashinfer" / "new.py").write_text("\n")  # only import.flashinfer rests on every file
    done = machine("check", "--locked", "-f", "json")
    assert "measured again: import.flashinfer\n" in done.stderr
    found = rows(done)
    assert found["import.torch"]["locked"]
    assert found["import.flashinfer"]["locked"] == ""
    assert {one["feature"] for one in json.loads(done.stdout)["outcomes"] if one["output"] or one["seconds"]} == {
        "import.flashinfer"
    }
    # It cannot be imported with this torch, so that what needs it does not work either.
    assert found["import.flashinfer"]["verdict"] == "broken"
    assert found["norm.rmsnorm"]["verdict"] == "unknown"
    assert "import.flashinfer does not work any more" in found["norm.rmsnorm"]["why"]
    assert done.returncode in (1, 3)


def test_what_is_not_in_the_lock_is_measured_as_a_whole_check_would(machine):
    # As `lock --feature import.flashinfer` writes it; torch says another version than its metadata.
    (machine.site / "torch" / "__init__.py").write_text("__version__ = '2.0'\n")
    path = machine.report()
    assert machine("lock", "--from", path, "--feature", "import.flashinfer").returncode == 0
    asked = ("--feature", "import.*", "--require", "import.torch")
    whole = machine("check", *asked)
    done = machine("check", "--locked", *asked, "-f", "json")
    assert "not in the lock, measured now: import.torch\n" in done.stderr
    assert (done.returncode, rows(done)["import.torch"]["verdict"]) == (whole.returncode, "broken")
    assert whole.returncode == 1


def test_frozen_says_first_how_many_rows_the_lock_does_not_hold(machine):
    assert machine("lock", "--from", machine.report(), "--feature", "import.torch").returncode == 0
    machine.marks["torch"].unlink()  # what an import loads is looked at when it is locked
    done = machine("check", "--locked", "--frozen", "--feature", "import.*")
    assert done.returncode == 0, done.stderr
    first = " ".join(done.stdout.split()).partition(" on ")[0]
    assert first == "1 row works, 0 are broken, 1 is unknown (1 is not in the lock, and not measured)"
    assert "not in the lock, and not measured: import.flashinfer\n" in done.stderr
    assert "measured now" not in done.stderr
    assert not machine.marks["torch"].exists()
    done = machine("check", "--locked", "--frozen", "--require", "import.flashinfer")
    assert done.returncode == 3
    # A lock that holds all says nothing of it.
    machine.locked()
    done = machine("check", "--locked", "--frozen")
    assert (done.returncode, "not in the lock" in done.stdout + done.stderr) == (0, False)


def test_a_lock_of_another_machine_says_what_differs(locked):
    other = "GPU-aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee"  # SM121
    done = locked("check", "--locked", "--frozen", "-f", "json", CUDA_VISIBLE_DEVICES=other)
    assert done.returncode == 3
    assert "gpu:sm90 present -> absent" in done.stderr


def test_a_report_of_another_machine_is_not_locked(machine):
    path = machine.report()
    text = path.read_text().replace('"version": "2.14.0"', '"version": "2.13.0"')
    path.write_text(text)
    done = machine("lock", "--from", path)
    assert done.returncode == 2
    assert "torch 2.13.0 there, 2.14.0 here" in in_three_parts(done.stderr)["why"]
    assert not machine.lock.exists()


def test_a_report_is_compared_with_the_interpreter_that_it_names(machine):
    machine.examined_in_a_venv()
    path = machine.report()
    done = machine("lock", "--from", path)
    assert done.returncode == 0, done.stderr
    machine.lock.unlink()
    assert machine("lock", "--from", path, *machine.python).returncode == 0
    done = machine("check", "--locked", *machine.python)
    assert done.returncode == 0, done.stderr
    # Another one can be named.
    done = machine("lock", "--from", path, "--python", sys.executable)
    assert done.returncode == 2
    assert "torch 2.14.0 there" in in_three_parts(done.stderr)["why"]


def test_a_report_of_an_interpreter_behind_a_wrapper_is_compared_through_it(machine):
    wrapper = script(machine.folder / "python", f'#!/bin/sh\nPYTHONPATH={machine.site} exec {sys.executable} "$@"\n')
    machine.env["PYTHONPATH"] = str(ROOT)
    machine.python = ("--python", wrapper)
    done = machine("lock", "--from", machine.report())
    assert done.returncode == 0, done.stderr
    done = machine("check", "--locked", *machine.python, "-f", "json")
    assert done.returncode == 0, done.stderr
    assert rows(done)["norm.rmsnorm"]["locked"]


def test_a_report_that_proves_nothing_is_not_locked(machine):
    path = machine.report()
    written = json.loads(path.read_text())
    written["outcomes"] = []
    path.write_text(json.dumps(written))
    done = machine("lock", "--from", path)
    assert done.returncode == 3
    assert not machine.lock.exists()


def test_thorough_sees_what_size_and_times_hide(machine):
    machine.locked()
    library = machine.ops / "norm" / "norm.so"
    done = machine("check", "--locked", "--frozen", "--thorough", "-f", "json")
    assert done.returncode == 0, done.stderr
    # A memory that says of the changed file what it said of the old one, as a clock that was set back could make it.
    library.write_bytes(b"\x7fELFmron")
    memory = next(machine.folder.rglob("digests.json"))
    known = json.loads(memory.read_text())
    state = library.stat()
    digest = json.loads(machine.lock.read_text())["inputs"]["cache:norm"]
    known["files"][str(library)] = [
        [state.st_size, state.st_mtime_ns, state.st_ctime_ns, state.st_ino, state.st_dev],
        digest,
    ]
    memory.write_text(json.dumps(known))
    assert machine("check", "--locked", "--frozen", "--feature", "norm.*").returncode == 0
    done = machine("check", "--locked", "--frozen", "--thorough", "--require", "norm.rmsnorm")
    assert done.returncode == 3
    assert "cache:norm" in done.stderr


def test_a_memory_that_cannot_be_used_changes_nothing(machine):
    machine.locked()
    folder = machine.folder / "memory" / "fi-doctor"
    damaged = list(folder.rglob("*.json"))
    assert damaged
    for path in damaged:
        path.write_text('{"half')
    done = machine("check", "--locked")
    assert done.returncode == 0, done.stderr
    shutil.rmtree(folder.parent)
    folder.parent.write_text("a file in its place")
    done = machine("check", "--locked")
    assert done.returncode == 0, done.stderr


MISTAKES = {
    "no-lock": (["check", "--locked"], 'cannot read the lock "fi-doctor.lock"', "fi-doctor lock"),
    "no-such-lock": (["check", "--locked", "x.lock"], '"x.lock"', "fi-doctor lock"),
    "frozen-alone": (["check", "--frozen"], "--frozen", "fi-doctor check --help"),
    "thorough-alone": (["check", "--thorough"], "--thorough", "fi-doctor check --help"),
    "with-from": (["check", "--locked", "--from", "r.json"], "--from and --locked", "leave one"),
    "with-example": (["check", "--locked", "--example", "h200"], "--example and --locked", "leave one"),
    "unwritable": (["lock", "-o", "/dev/null/fi-doctor.lock"], "/dev/null/fi-doctor.lock", "-o"),
    "onto-a-folder": (["lock", "-o", "/"], "'/'", "-o"),
    "no-such-report": (["lock", "--from", "nothing.json"], "nothing.json", ""),
}


@pytest.mark.parametrize(("words", "what", "todo"), MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_is_2_with_what_and_what_to_do(doctor, words, what, todo):
    done = doctor(*words)
    assert done.returncode == 2, done.stderr
    said = in_three_parts(done.stderr)
    assert what in said["error"]
    assert todo in said["try"]
    assert done.stdout == ""


def test_half_a_lock_is_2_and_an_existing_lock_is_kept_when_nothing_is_proved(machine):
    machine.locked()
    text = machine.lock.read_text()
    machine.lock.write_text(text[: len(text) // 2])
    done = machine("check", "--locked")
    assert done.returncode == 2
    assert "not written to its end" in in_three_parts(done.stderr)["why"]
    machine.lock.write_text(text)
    path = machine.report("other.json")
    written = json.loads(path.read_text())
    written["outcomes"] = []
    path.write_text(json.dumps(written))
    assert machine("lock", "--from", path).returncode == 3
    assert machine.lock.read_text() == text
