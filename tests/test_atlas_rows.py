"""benchmarks/atlas.py: what is asked for, and the line that each module leaves however it ends."""

import json
import time
import types

import pytest

MACHINE = {"cpu": "a CPU", "cores": 2, "jobs": 1, "host": "c++ 12"}
KEY = ("0.7.2.post1", "page", "13.2", "90a")


@pytest.fixture
def script(monkeypatch, request):
    monkeypatch.syspath_prepend(request.config.rootpath / "benchmarks")
    import atlas

    monkeypatch.setattr(atlas.record, "machine", lambda _: MACHINE)
    return atlas


@pytest.fixture
def run(script, tmp_path):
    """Run a module of these commands, the last of which links; gives the lines there are then."""

    def running(*commands, refused="", budget=60.0):
        rows = tmp_path / "rows.jsonl"
        arguments = types.SimpleNamespace(jobs=1, nice=0, budget=budget, limit=60.0, work=tmp_path, rows=rows)
        plan = {"name": "page", "folder": str(tmp_path), "commands": list(commands), "refused": refused}
        module, atlas = script.Module(KEY, {"nvcc": "V13.2.86"}, plan), script.Atlas(arguments)
        if refused:
            atlas.write(module, "refused")
        for command in module.commands:
            atlas.unit(module, command)
        return [json.loads(line) for line in rows.read_text().splitlines()] if rows.exists() else []

    return running


def compiles(name):
    return f"touch {name}.o && : -gencode=arch=compute_90a,code=sm_90a -c {name}.cu -o {name}.o"


def test_a_module_that_compiles_leaves_what_each_unit_took_and_no_objects(run, tmp_path):
    [row] = run(compiles("page"), compiles("binding"), ": -shared -o page.so")
    assert (row["outcome"], row["linked"], row["units"], row["earlier"]) == ("compiled", True, 2, 0)
    assert [row[name] for name in ("flashinfer", "module", "nvcc", "arch")] == [*KEY]
    assert row["code"] == ["sm_90a"]
    assert [took[0] for took in row["took"]] == ["binding.cu", "page.cu"]
    assert all(took[1] >= 0 and took[3] > 0 for took in row["took"])
    assert (row["machine"], row["versions"]) == (MACHINE, {"nvcc": "V13.2.86"})
    assert list(tmp_path.glob("*.o")) == []


def test_the_first_error_is_told_without_folders_and_no_other_unit_is_begun(run, tmp_path):
    fails = "echo 'note'; echo '/a/b/page.cu(3): error: no such thing'; false -c /a/b/page.cu -o page.o"
    [row] = run(fails, compiles("binding"), ": -o page.so")
    assert (row["outcome"], row["failed_unit"], row["linked"]) == ("failed", "page.cu", False)
    assert row["error"] == "page.cu(3): error: no such thing"
    assert not (tmp_path / "binding.o").exists()


def test_what_does_not_link_compiled_all_the_same(run):
    [row] = run(compiles("page"), "echo 'ld: cannot find -lcuda'; false -o page.so")
    assert (row["outcome"], row["linked"], row["link_error"]) == ("compiled", False, "ld: cannot find -lcuda")


def test_what_flashinfer_refuses_is_told_in_its_words(run):
    [row] = run(refused="RuntimeError: no such architecture")
    assert (row["outcome"], row["error"], row["units"]) == ("refused", "RuntimeError: no such architecture", 0)


@pytest.mark.parametrize(
    "says",
    ["cicc died due to signal 9 (Kill signal)", "No space left on device", "fatal error: cublasLt.h: No such file"],
)
def test_what_is_killed_has_no_room_or_lacks_a_library_says_nothing_of_the_module(run, says):
    assert run(f"echo '{says}'; false -c page.cu -o page.o", ": -o page.so") == []


def test_a_run_goes_on_where_its_budget_ended(run):
    seen = "echo again >> seen; " + compiles("page")
    assert run(seen, compiles("binding"), "exit 9 -o page.so", budget=0.0) == []
    assert run(seen, "kill -9 $$ -c binding.cu -o binding.o", ": -o page.so") == []
    [row] = run(seen, compiles("binding"), ": -o page.so")
    assert (row["outcome"], row["earlier"]) == ("compiled", 1)


def test_broad_modules_are_asked_of_each_nvcc_and_the_others_of_one_for_some(script, tmp_path):
    (tmp_path / "flashinfer_python-0.7.2.dist-info").mkdir()
    toolkits = [script.record.Toolkit(tmp_path, version, f"V{version}.1", "") for version in ("13.0", "13.1")]
    asked = types.SimpleNamespace(flashinfer=[tmp_path], one_nvcc="13.0", modules=None, arch=None)
    found = script.wanted(asked, toolkits, {("0.7.2", "norm", "13.1", "80")})
    names = {(toolkit.version, architecture): names for (_, toolkit, architecture), names in found.items()}
    assert sorted(names["13.0", "9.0a"]) == sorted(script.MODULES)
    assert names["13.1", "9.0a"] == [name for name in script.MODULES if name in script.BROAD]
    assert names["13.0", "8.0"] == names["13.1", "9.0a"]
    assert "norm" not in names["13.1", "8.0"]


def test_what_takes_minutes_begins_first_then_what_is_broad(script):
    order = sorted(script.MODULES, key=script.place)
    assert order[:4] == ["trtllm_comm", "norm", "page", "silu_and_mul"]
    assert order[4] == "batch_mla"


def test_what_runs_at_the_limit_is_killed_and_leaves_no_line(script, tmp_path, monkeypatch):
    rows = tmp_path / "rows.jsonl"
    arguments = types.SimpleNamespace(
        jobs=1, nice=0, budget=60.0, limit=0.1, work=tmp_path, rows=rows, dry_run=False
    )  # fmt: skip
    commands = ["sleep 60; : -c page.cu -o page.o", compiles("binding"), ": -o page.so"]
    plan = {"name": "page", "folder": str(tmp_path), "commands": commands, "refused": ""}
    monkeypatch.setattr(script.Atlas, "plan", lambda *_: [script.Module(KEY, {"nvcc": "V13.2.86"}, plan)])
    begun = time.monotonic()
    script.Atlas(arguments).go({"a place": ["page"]})
    assert time.monotonic() - begun < 30
    assert not rows.exists()
    assert not (tmp_path / "binding.o").exists()
