"""The scripts of deploy/ as child processes, in what GitHub, GitLab and Kubernetes set around them."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import shlex
import shutil
import signal
import subprocess
import sys

import jsonschema
from waiting import wait_for

ROOT = pathlib.Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
CHECK = DEPLOY / "check.sh"
GITHUB = DEPLOY / "github" / "action.sh"
EXAMPLE = "--example h200 --no-config"
# What is asked of a recorded machine, and the code of the gate.
ASKED = {
    0: f"{EXAMPLE} --feature 'moe.*'",
    1: f"{EXAMPLE} --feature 'moe.*' --require moe.trtllm_fp8_block",
    2: f"{EXAMPLE} --feature norm.rmsnrm",
    3: f"{EXAMPLE} --require comm.allreduce_fusion",
}
# An interpreter that never answers, for signals to come in between.
HANGING = '#!/bin/sh\ntouch "$BEGUN"\nexec sleep 600\n'
# A fi-doctor that keeps the words it was called with, writes what it is asked for, and decides what $CODE says.
RECORDING = """#!/bin/sh
printf '%s\\n' "$@" >>"$THIS_TEST/words"
for word; do
  case $word in json:* | nfd:* | prometheus:*) [ -n "${SILENT:-}" ] || printf '%s' "$REPORT" >"${word#*:}" ;; esac
done
echo "fi-doctor: ${SAID:-it is so} (exit $CODE)" >&2
exit "$CODE"
"""
REPORT = '{"created": "2026-01-02T03:04:05+00:00", "gate": {"code": 0, "reason": "it is so"}}'
# What Kubernetes takes, see its comment.
SCHEMAS = json.loads((pathlib.Path(__file__).parent / "kubernetes.json").read_text())
KINDS = {name.rpartition(".")[2]: name for name in SCHEMAS["$defs"]}


def validator(name):
    """Of one of Kubernetes' types by its whole name."""
    return jsonschema.Draft202012Validator({**SCHEMAS, "$ref": f"#/$defs/{name}"})


class Place:
    """A folder to run a script in, with a fi-doctor of this checkout, or another one, on PATH."""

    def __init__(self, folder):
        self.folder = folder
        self.bin = folder / "bin"
        self.bin.mkdir()
        self.put_doctor(ROOT)

    def put_doctor(self, checkout):
        words = shlex.join(["env", f"PYTHONPATH={checkout}", sys.executable, "-m", "fi_doctor"])
        return script(self.bin / "fi-doctor", f'#!/bin/sh\nexec {words} "$@"\n')

    def record(self, path=None):
        """Put the recording stand-in in fi-doctor's place."""
        return script(path or self.bin / "fi-doctor", RECORDING)

    def words(self):
        """What it was called with, and forget it."""
        path = self.folder / "words"
        found = path.read_text().splitlines() if path.exists() else []
        path.unlink(missing_ok=True)
        return found

    def environ(self, **changes):
        base = {
            "REPORT": REPORT,
            "PATH": f"{self.bin}{os.pathsep}{os.environ['PATH']}",
            "HOME": self.folder,
            "LANG": "C.UTF-8",
            "THIS_TEST": self.folder,
            "BEGUN": self.folder / "begun",
            "PIP_NO_COMPILE": "1",  # most of what is installed is never imported
            **{name: value for name, value in os.environ.items() if name.startswith("PIP_")},
        }
        return {name: str(value) for name, value in {**base, **changes}.items()}

    def run(self, *argv, **changes):
        return subprocess.run(
            [str(word) for word in argv],
            cwd=self.folder,
            env=self.environ(**changes),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=200,
        )

    def start_hanging(self, *argv, **changes):
        """Start a check of an interpreter that never answers; gives the process once it is being examined."""
        python = script(self.folder / "python", HANGING)
        child = subprocess.Popen(
            [str(word) for word in argv],
            cwd=self.folder,
            env=self.environ(CHECK_PYTHON=python, CHECK_ARGS="--no-config", **changes),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509
        )
        assert wait_for((self.folder / "begun").exists)
        return child

    def processes(self, holding=""):
        """The processes of this test whose command line holds a text."""
        found = []
        for entry in pathlib.Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                if not entry.name.isdigit():
                    continue
                ours = f"THIS_TEST={self.folder}".encode() in (entry / "environ").read_bytes().split(b"\0")
                if ours and holding in (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode():
                    found.append(int(entry.name))
        return found

    def kill_all(self):
        for number in self.processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(number, signal.SIGKILL)


class Action(Place):
    """A runner of GitHub that has come to the action's step."""

    def __init__(self, folder):
        super().__init__(folder)
        self.output = folder / "output"
        self.summary = folder / "summary"
        self.output.touch()
        self.summary.touch()

    def environ(self, **changes):
        inputs = dict.fromkeys(("CHECK_PYTHON", "CHECK_CONFIG", "CHECK_ARGS", "CHECK_WARM", "CHECK_INSTALL"), "")
        inputs |= {"CHECK_REPORT": "out/report.json", "CHECK_JUNIT": "out/junit.xml"}
        runner = {
            "GITHUB_ACTIONS": "true",
            "GITHUB_OUTPUT": self.output,
            "GITHUB_STEP_SUMMARY": self.summary,
            "GITHUB_ACTION_PATH": GITHUB.parent,
            "RUNNER_TEMP": self.folder,
        }
        return super().environ(**{**runner, **inputs, **changes})

    def outputs(self):
        return dict(line.split("=", 1) for line in self.output.read_text().splitlines())


class Pod(Place):
    """An init container: both scripts in one folder, as the ConfigMap has them, and a file for the message."""

    def __init__(self, folder):
        super().__init__(folder)
        self.log = folder / "termination-log"
        self.log.touch()
        self.mounted = folder / "etc"
        self.mounted.mkdir()
        for path in (DEPLOY / "check.sh", DEPLOY / "kubernetes" / "init.sh"):
            shutil.copy(path, self.mounted)
        self.script = self.mounted / "init.sh"

    def environ(self, **changes):
        return super().environ(**{"TERMINATION_LOG": self.log, **changes})

    def message(self):
        return self.log.read_text(encoding="utf-8")


def script(path, text):
    path.write_text(text, encoding="utf-8")
    path.chmod(0o755)
    return path


def checkout(folder):
    """A copy of what is installed, to be damaged or committed."""
    skipped = shutil.ignore_patterns("__pycache__")
    for name in ("fi_doctor", "probes", "deploy"):
        shutil.copytree(ROOT / name, folder / name, ignore=skipped)
    for name in ("pyproject.toml", "README.md"):
        shutil.copy(ROOT / name, folder)
    return folder
