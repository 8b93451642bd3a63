"""The JIT cache is filled by a real ninja with whole modules; a dry run says what that takes and writes nothing."""

import shutil

import pytest
from test_prebuild import Machine

from fi_doctor.model import Depth, Missing, Request, Silent
from fi_doctor.probing import warm
from fi_doctor.probing.plan import plan

pytestmark = pytest.mark.skipif(shutil.which("ninja") is None, reason="no ninja on PATH")

ASKED = Request(depth=Depth.BUILD, jobs=2, budget_s=600)


class Heard(Silent):
    def __init__(self):
        self.lines = []

    def begun(self, modules):
        self.lines.append(("begun", *modules))

    def settled(self, module, words, done, total):
        self.lines.append((module, words, done, total))


def fill(machine, request=ASKED, watch=None, *, is_dry=False):
    planned = plan(machine.specs, machine.facts, request)
    return warm.fill(
        planned,
        facts=machine.facts,
        request=request,
        watch=watch or Heard(),
        environ=machine.environ,
        is_dry=is_dry,
        command="fi-doctor warm",
    )


def places(done):
    return {one.name: str(one.place) for one in done.modules}


def contents(folder):
    """Every file and folder with what it holds and when that was written."""
    return {
        path: (path.lstat().st_mtime_ns, path.read_bytes() if path.is_file() else b"")
        for path in [folder, *sorted(folder.rglob("*"))]
    }


@pytest.fixture(params=["shared", "own"])
def machine(request, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "kept"))
    (tmp_path / "machine").mkdir()
    made = Machine(tmp_path / "machine", request.param)
    for name in ("a", "b"):
        made.module(name, "sleep 0.2", "true")
        made.probe(name)
    return made


def test_a_dry_run_tells_what_is_stale_and_writes_nothing_in_an_empty_cache(machine):
    done = fill(machine, is_dry=True)
    assert places(done) == {"a": "to compile", "b": "to compile"}
    assert [one.objects for one in done.modules] == [2, 2]
    assert all(one.estimated_seconds > 0 and isinstance(one.disk_mib, Missing) for one in done.modules)
    assert (done.code, done.command) == (0, "fi-doctor warm")
    assert machine.compiled() == []
    assert not machine.ops.parent.exists()


def test_a_dry_run_leaves_a_filled_cache_byte_for_byte_as_it_was(machine):
    fill(machine)
    (machine.sources / "b" / "b0.cu").write_text("true # changed\n")
    before = contents(machine.folder / ".cache")
    done = fill(machine, is_dry=True)
    assert contents(machine.folder / ".cache") == before
    assert places(done) == {"a": "up to date", "b": "to compile"}
    assert [one.objects for one in done.modules] == [0, 1]
