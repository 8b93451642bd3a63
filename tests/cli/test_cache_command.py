"""`fi-doctor cache`: what it says, what it removes, and its exit codes."""

import json
import shutil
import subprocess
import sys

import jsonschema
import pytest
import yaml
from cli_command import ROOT
from elf_samples import CUBIN, SPECIFIC, container, elf, entry
from permissions import obey_permissions

from fi_doctor.cli import schemas

LIBRARY = elf(container(entry(CUBIN, 90, SPECIFIC)))


@pytest.fixture
def cache(doctor, tmp_path):
    """cache(*words): the command on a FlashInfer whose cache has a module that is well and one that is empty."""
    site = tmp_path / "site"
    (site / "flashinfer").mkdir(parents=True)
    (site / "flashinfer" / "__init__.py").touch()
    (site / "flashinfer" / "_build_meta.py").write_text('__version__ = "0.7.2.post1"\n')
    ops = tmp_path / ".cache" / "flashinfer" / "0.7.2.post1" / "90a" / "cached_ops"
    for name, data in (("norm", LIBRARY), ("page", b"")):
        (ops / name).mkdir(parents=True)
        (ops / name / f"{name}.so").write_bytes(data)
        (ops / name / "build.ninja").write_text("ninja_required_version = 1.3\nname = x\n\nrule compile\n")

    def run(*words, **options):
        return doctor("cache", *words, env={"PYTHONPATH": f"{site}:{ROOT}"}, of_examined=True, **options)

    run.ops = ops
    return run


def test_what_is_bad_is_named_with_the_command_that_removes_it(cache):
    done = cache()
    assert done.returncode == 1, done.stderr
    assert "page (0.7.2.post1/90a): poisoned: its library cannot be loaded: it is empty" in done.stdout
    assert "norm (" not in done.stdout
    assert "  fi-doctor cache --prune\n" in done.stdout
    assert done.stderr.endswith("(exit 1)\n")
    assert "norm (0.7.2.post1/90a): valid" in cache("--all").stdout


@pytest.mark.parametrize(("form", "parse"), [("--json", json.loads), ("--yaml", yaml.safe_load)])
def test_machine_formats_have_everything(cache, form, parse):
    said = parse(cache(form).stdout)
    jsonschema.Draft202012Validator(json.loads(schemas.text("cache"))).validate(said)
    assert said["schema"] == "fi-doctor.cache/1.0"
    assert {one["module"]["name"]: one["state"] for one in said["entries"]} == {"norm": "valid", "page": "poisoned"}
    assert said["code"] == 1


def test_pruning_says_first_asks_and_removes_only_the_bad(cache):
    dry = cache("--prune", "--dry-run")
    assert dry.returncode == 1
    assert f"would remove: {cache.ops / 'page'} (poisoned: " in dry.stderr
    unasked = cache("--prune")
    assert (unasked.returncode, unasked.stdout) == (2, "")
    assert "nobody can be asked" in unasked.stderr
    assert (cache.ops / "page").is_dir()
    done = cache("--prune", "--yes")
    assert done.returncode == 0, done.stderr
    assert "Removed 1 module" in done.stdout
    assert sorted(path.name for path in cache.ops.iterdir()) == ["norm", "tmp"]  # its locks
    assert cache("--prune").returncode == 0


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--yes"], "nothing is removed without --prune"),
        (["--dry-run"], "nothing is removed without --prune"),
        (["--json", "--yaml"], "one format at a time"),
        (["--python", ""], "names no interpreter"),
    ],
    ids=" ".join,
)
def test_words_that_do_not_go_together_are_2(cache, words, why):
    done = cache(*words)
    assert (done.returncode, done.stdout) == (2, "")
    assert why in done.stderr


def test_what_was_removed_is_not_counted_any_more(cache):
    assert "Modules: 1 poisoned, 1 valid\n" in cache("--prune", "--dry-run").stdout
    assert "Modules: 1 valid\n" in cache("--prune", "--yes").stdout


def test_removals_at_once_leave_nothing_that_is_bad(cache, doctor, tmp_path):
    for number in range(20):
        (cache.ops / f"bad{number}").mkdir()
        (cache.ops / f"bad{number}" / f"bad{number}.so").touch()
    environ = {"PYTHONPATH": f"{tmp_path / 'site'}:{ROOT}"}
    running = [doctor.start("cache", "--prune", "--yes", env=environ, stderr=subprocess.PIPE) for _ in range(3)]
    ended = [(process.communicate(timeout=60)[1].decode(), process.returncode) for process in running]
    assert [code for _, code in ended] == [0, 0, 0], ended
    assert sorted(path.name for path in cache.ops.iterdir()) == ["norm", "tmp"]


def test_the_command_for_a_next_start_names_the_interpreter(cache, tmp_path):
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    said = " ".join(cache("--python", python).stdout.split())
    assert f"fi-doctor warm --python {python} --dry-run" in said


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("cached_ops/norm", "norm (0.7.2.post1/90a): unread: it cannot be looked at: Permission denied"),
        ("cached_ops", "90a/cached_ops: Permission denied"),
        ("..", "0.7.2.post1: Permission denied"),
    ],
)
def test_what_cannot_be_looked_at_is_said_and_is_3(cache, name, said):
    shutil.rmtree(cache.ops / "page")
    folder = (cache.ops.parent / name).resolve()
    folder.chmod(0)
    try:
        done = cache(preexec_fn=obey_permissions)
    finally:
        folder.chmod(0o755)
    assert done.returncode == 3
    assert said in " ".join(done.stdout.split())
    assert "cannot be looked at; nothing is wrong with 0 modules" in done.stderr


def test_without_flashinfer_nothing_can_be_told(doctor):
    done = doctor("cache")
    assert (done.returncode, done.stdout) == (3, "")
    assert "no FlashInfer" in done.stderr
