"""What a check against a lock makes of rows that hold, that do not, and that this version does not know."""

from __future__ import annotations

import os
from datetime import datetime, timezone
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
from installation import CREATED, ROWS, Installation, write
from msgspec.structs import replace

from fi_doctor import locked
from fi_doctor.locking import document
from fi_doctor.locking.model import Key
from fi_doctor.model import Builds, Depth, Evidence, Request, Scope, Verdict


@pytest.fixture
def machine(tmp_path):
    return Installation(tmp_path)


def rows(report):
    return {row.feature: row for row in report.features}


def test_rows_that_hold_have_their_verdict_and_say_that_it_is_locked(machine):
    before = rows(machine.report)
    report = machine.checked(machine.lock()).report()
    for name in ROWS:
        row = rows(report)[name]
        assert (row.verdict, row.evidence, row.scope) == (before[name].verdict, before[name].evidence, Scope.FULL)
        assert row.locked == CREATED[:10]
        assert row.why == f"locked {CREATED[:10]}: {before[name].why}"
    assert (report.gate.code, machine.report.gate.code) == (0, 0)


def test_rows_that_were_not_measured_are_not_in_the_lock_and_stay_unknown(machine):
    lock = machine.lock()
    assert {row.feature for row in lock.rows} == set(ROWS)
    assert lock.left_out["moe.bf16 on SM90"].startswith("unknown")
    row = rows(machine.checked(lock).report())["moe.bf16"]
    assert (row.verdict, row.locked) == (Verdict.UNKNOWN, "")
    assert "not in the lock" in row.why


def test_rows_that_are_asked_for_and_not_in_the_lock_are_to_be_measured(machine):
    lock = machine.lock()
    every = machine.checked(lock).not_held()
    assert Key("moe.bf16", 90) in every
    assert not {key.feature for key in every} & set(ROWS)
    request = Request(depth=Depth.RUN, features=("moe.bf16", "norm.rmsnorm"))
    assert machine.checked(lock, request).not_held() == (Key("moe.bf16", 90),)
    request = Request(depth=Depth.RUN, features=("norm.rmsnorm",))
    assert machine.checked(lock, request).not_held() == ()


def test_what_can_only_be_built_is_left_alone_unless_it_is_required(machine):
    import factory as make

    lock = machine.lock()
    machine.facts = replace(machine.facts, gpus=make.gpu_facts(make.gpu(index=0)))
    key = Key("comm.allreduce_fusion", 90)
    rest = replace(lock, rows=tuple(row for row in lock.rows if row.key != key))
    assert key not in machine.checked(rest).not_held()
    request = Request(depth=Depth.RUN, required=("comm.*",))
    assert key in machine.checked(rest, request).not_held()
    machine.facts = replace(machine.facts, gpus=make.gpu_facts(make.gpu(index=0), make.gpu(index=1)))
    assert key in machine.checked(rest).not_held()


def test_a_row_that_fails_is_locked_as_one_and_gives_the_same_code(machine):
    broken = tuple(
        replace(
            one,
            ending=type(one.ending)("signalled"),
            cells=tuple(replace(c, ending=type(c.ending)("signalled"), detail="SIGSEGV") for c in one.cells),
        )
        if one.feature == "sampling.top_k_top_p"
        else one
        for one in machine.report.outcomes
    )
    report = judged(machine, broken)
    assert report.gate.code == 1
    again = machine.checked(machine.lock(report)).report()
    assert again.gate.code == 1
    assert rows(again)["sampling.top_k_top_p"].verdict is Verdict.BROKEN


def judged(machine, outcomes):
    from fi_doctor import pipeline
    from fi_doctor.probing import plan

    request = machine.report.request
    return pipeline.conclude(
        request,
        kb=machine.kb,
        facts=machine.facts,
        planned=plan.plan(machine.specs, machine.facts, request),
        outcomes=outcomes,
        created=CREATED,
    )


def test_frozen_rows_that_changed_are_unknown_with_what_changed_and_the_code_is_3(machine):
    lock = machine.lock()
    write(machine.site / "flashinfer/data/csrc/sampling.cu", "another")
    check = machine.checked(lock)
    assert check.to_measure() == (Key("sampling.top_k_top_p", 90),)
    report = check.report()
    row = rows(report)["sampling.top_k_top_p"]
    assert (row.verdict, row.locked) == (Verdict.UNKNOWN, "")
    assert "package:flashinfer-python:data/csrc/sampling.cu" in row.why
    assert rows(report)["norm.rmsnorm"].locked
    assert report.gate.code == 3
    assert report.gate.reason.endswith(
        f"; sampling.top_k_top_p on SM90 is unknown: {row.why.rpartition('; not run: ')[2]}"
    )
    assert "required" not in report.gate.reason
    assert report.gate.failed_required == ()


def test_a_row_that_vllm_never_calls_does_not_matter(machine):
    lock = machine.lock()
    write(machine.site / "flashinfer/data/csrc/norm.cu", "another")
    report = machine.checked(lock).report()
    assert rows(report)["norm.rmsnorm"].verdict is Verdict.UNKNOWN
    assert report.gate.code == 0


def test_a_row_that_is_required_and_changed_is_3_whoever_calls_it(machine):
    lock = machine.lock()
    write(machine.site / "flashinfer/data/csrc/norm.cu", "another")
    request = Request(depth=Depth.RUN, required=("norm.*",))
    assert machine.checked(lock, request).report().gate.code == 3


def test_a_lock_of_another_machine_proves_nothing_here_and_says_what_differs(machine):
    import factory as make

    lock = machine.lock()
    other = make.gpu_facts(make.gpu(sm=100, index=0), make.gpu(sm=100, index=1), driver="590.1")
    machine.facts = replace(machine.facts, gpus=other)
    check = machine.checked(lock)
    assert "gpu:sm90 present -> absent" in check.difference()
    report = check.report()
    lost = [row for row in report.features if row.feature == "sampling.top_k_top_p"]
    assert {(row.sm, row.verdict) for row in lost} == {(90, Verdict.UNKNOWN), (100, Verdict.UNKNOWN)}
    assert report.gate.code == 3


def test_a_feature_that_this_version_does_not_know_is_unknown(machine):
    lock = machine.lock()
    known = next(row for row in lock.rows if row.feature == "norm.rmsnorm")
    strange = replace(known, feature="norm.of_the_future", why="it worked")
    lock = replace(lock, rows=(*lock.rows, strange))
    report = machine.checked(lock).report()
    row = rows(report)["norm.of_the_future"]
    assert (row.verdict, row.evidence, row.locked) == (Verdict.UNKNOWN, Evidence.NONE, "")
    assert "no such row" in row.why
    assert machine.checked(lock).to_measure() == (Key("norm.of_the_future", 90),)


@pytest.mark.parametrize(
    "inputs", [("quantum:flux",), ("gpu:sm90:many",), ("peers:sm90",)], ids=["kind", "form", "number"]
)
def test_an_input_that_this_version_cannot_read_is_never_as_it_was(machine, inputs):
    lock = machine.lock()
    value = dict.fromkeys(inputs, "not known to this fi-doctor!")
    rows_ = tuple(replace(row, inputs=(*row.inputs, *inputs)) for row in lock.rows)
    lock = replace(lock, rows=rows_, inputs={**lock.inputs, **value})
    assert machine.touched(lock) == set(ROWS)


def test_an_input_without_a_value_is_never_as_it_was(machine):
    lock = machine.lock()
    inputs = {name: value for name, value in lock.inputs.items() if name != "cache:norm"}
    assert machine.touched(replace(lock, inputs=inputs)) == {"norm.rmsnorm", "norm.fused_add_rmsnorm"}
    assert machine.touched(replace(lock, groups={})) == set(ROWS)


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("verdict", {"verdict": Verdict.WORKS}),
        ("evidence", {"evidence": Evidence.RAN}),
        ("scope", {"scope": Scope.SUBSET}),
    ],
    ids=["verdict", "evidence", "scope"],
)
def test_a_row_that_its_outcome_does_not_give_is_not_believed(machine, name, changes):
    outcomes = machine.report.outcomes
    lock = machine.lock()
    if name == "verdict":  # as somebody would write who wants it to work
        cells = {one.feature: one for one in outcomes}["norm.rmsnorm"].cells
        bad = tuple(replace(cell, ending=type(cell.ending)("raised"), detail="no image") for cell in cells)
        lock = replace(
            lock, outcomes=tuple(replace(o, cells=bad) if o.feature == "norm.rmsnorm" else o for o in lock.outcomes)
        )
    changed = tuple(replace(row, **changes) if row.feature == "norm.rmsnorm" else row for row in lock.rows)
    check = machine.checked(replace(lock, rows=changed))
    assert check.to_measure() == (Key("norm.rmsnorm", 90),)
    assert rows(check.report())["norm.rmsnorm"].verdict is Verdict.UNKNOWN


def test_a_row_without_its_outcome_is_not_believed(machine):
    lock = machine.lock()
    outcomes = tuple(one for one in lock.outcomes if one.feature != "norm.rmsnorm")
    assert machine.checked(replace(lock, outcomes=outcomes)).to_measure() == (Key("norm.rmsnorm", 90),)


def test_only_the_rows_that_are_asked_for_are_judged_and_measured(machine):
    lock = machine.lock()
    write(machine.site / "flashinfer/data/csrc/norm.cu", "another")
    check = machine.checked(lock, Request(depth=Depth.RUN, features=("sampling.top_k_*",)))
    assert check.to_measure() == ()
    report = check.report()
    assert [row.feature for row in report.features] == ["sampling.top_k_top_p"]
    assert report.gate.code == 0


def test_a_file_that_was_written_after_the_report_keeps_its_rows_out(machine):
    report = replace(machine.report, created="2020-01-01T00:00:00+00:00")
    lock = machine.lock(report)
    assert lock.rows == ()
    assert "was written after it was measured" in lock.left_out["norm.rmsnorm on SM90"]


def test_a_file_with_the_time_of_an_older_one_keeps_its_rows_out_too(machine):
    path = machine.site / "flashinfer/norm.py"
    path.write_text("another")
    os.utime(path, ns=(1, 1))
    report = replace(machine.report, created=datetime.now(timezone.utc).replace(year=2020).isoformat())
    assert "was written after it was measured" in machine.lock(report).left_out["norm.rmsnorm on SM90"]


def test_what_changes_while_others_are_measured_holds_no_more(machine, monkeypatch):
    lock = machine.lock()
    write(machine.site / "flashinfer/data/csrc/sampling.cu", "another")
    check = machine.checked(lock)
    assert check.to_measure() == (Key("sampling.top_k_top_p", 90),)

    def measuring(planned, **_):
        write(machine.site / "flashinfer/data/csrc/norm.cu", "another")
        return (), Builds()

    monkeypatch.setattr(locked.running, "run_all", measuring)
    gathering = SimpleNamespace(finish=lambda _: machine.facts, environ=machine.environ)
    report = check.measured(lambda: gathering, Mock(), lambda: machine.now(lock))
    found = {row.feature: row for row in report.features}
    assert "changed while other rows were measured: package:flashinfer-python:data/csrc/norm.cu" in (
        found["norm.rmsnorm"].why
    )
    assert found["norm.rmsnorm"].verdict is Verdict.UNKNOWN
    assert found["activation.silu_and_mul"].verdict is Verdict.WORKS
    assert report.gate.code == 3


def test_a_gpu_that_nvml_does_not_list_is_not_locked(machine):
    import factory as make

    report = machine.report
    machine.facts = replace(machine.facts, gpus=make.no_gpus())
    lock = machine.lock(report)
    assert {row.feature for row in lock.rows} == {"import.torch", "import.flashinfer"}
    assert "NVML" in lock.left_out["norm.rmsnorm on SM90"]


def test_an_old_report_without_module_names_rests_on_the_declared_module(machine):
    outcomes = tuple(
        replace(one, cells=tuple(replace(cell, modules=()) for cell in one.cells)) for one in machine.report.outcomes
    )
    lock = machine.lock(judged(machine, outcomes))
    sampling = next(row for row in lock.rows if row.feature == "sampling.top_k_top_p")
    assert "cache:sampling" in sampling.inputs
    assert "module:sampling" in sampling.groups


def test_a_module_of_which_no_log_tells_rests_on_all_sources(machine):
    (machine.ops / "norm" / ".ninja_deps").unlink()
    lock = machine.lock()
    assert "package:flashinfer-python:data/csrc/" in lock.groups["module:norm"]
    write(machine.site / "flashinfer/data/csrc/sampling.cu", "another")
    assert machine.touched(lock) == {"norm.rmsnorm", "norm.fused_add_rmsnorm", "sampling.top_k_top_p"}


def test_a_package_behind_a_link_is_known_by_what_it_was_compiled_from(machine):
    link = machine.folder / "lib64"
    link.symlink_to(machine.site)
    machine.facts = replace(machine.facts, flashinfer=replace(machine.facts.flashinfer, root=str(link / "flashinfer")))
    assert machine.lock().groups["module:norm"] == (
        "package:flashinfer-python:data/csrc/norm.cu",
        "package:flashinfer-python:data/csrc/shared.h",
        "package:flashinfer-python:data/include/flashinfer/norm.cuh",
    )


def test_what_differs_from_run_to_run_is_not_in_a_lock(machine):
    noisy = tuple(
        replace(
            one,
            output="said",
            reproduce="python /home/user/probe.py",
            seconds={"ran": 1.5},
            cells=tuple(
                replace(c, seconds=1.5, traceback="/home/user", measurements={"import_s": 1.5, "tactics": "0"})
                for c in one.cells
            ),
        )
        for one in machine.report.outcomes
    )
    lock = machine.lock(replace(machine.report, outcomes=noisy))
    text = document.to_json(lock)
    assert not [word for word in ("said", "/home/user", "1.5", "import_s") if word in text]
    assert {cell.measurements["tactics"] for one in lock.outcomes for cell in one.cells} == {"0"}


def test_a_lock_is_read_as_it_was_written_and_written_alike(machine):
    lock = machine.lock()
    text = document.to_json(lock)
    assert document.to_json(machine.lock()) == text
    assert document.read(text.encode(), "fi-doctor.lock") == lock
    assert str(machine.folder) not in text.replace(f" in {machine.folder}/cuda, gates read", "")


def test_the_schema_fits_what_is_written(machine):
    import json

    import jsonschema

    jsonschema.validate(json.loads(document.to_json(machine.lock())), document.schema())


def again(machine, report, request=None):
    from fi_doctor import pipeline

    return pipeline.rejudge(report, request or report.request, kb=machine.kb, specs=machine.specs)


def test_a_report_of_a_locked_check_that_is_judged_again_still_says_locked(machine):
    write(machine.site / "flashinfer/data/csrc/norm.cu", "another")
    lock = machine.lock()
    write(machine.site / "flashinfer/data/csrc/norm.cu", "a third")
    report = machine.checked(lock).report()
    found = again(machine, report)
    assert {row.feature: row.locked for row in found.features} == {row.feature: row.locked for row in report.features}
    row = rows(found)["sampling.top_k_top_p"]
    assert (row.locked, row.why) == (CREATED[:10], rows(report)["sampling.top_k_top_p"].why)
    assert all(cell.why.startswith(f"locked {CREATED[:10]}: ") for cell in row.cells)


def test_a_lock_of_a_locked_report_keeps_the_day_of_the_measurement(machine):
    report = replace(machine.checked(machine.lock()).report(), created="2039-01-01T00:00:00+00:00")
    second = machine.lock(again(machine, report))
    assert {row.feature for row in second.rows} == set(ROWS)
    assert {row.measured for row in second.rows} == {CREATED[:10]}
    assert not [row.why for row in second.rows if "locked" in row.why]
    assert rows(machine.checked(second).report())["norm.rmsnorm"].locked == CREATED[:10]


def test_a_failure_that_nothing_explains_says_that_it_was_locked(machine):
    broken = tuple(
        replace(one, cells=tuple(replace(c, ending=type(c.ending)("signalled"), detail="SIGSEGV") for c in one.cells))
        if one.feature == "sampling.top_k_top_p"
        else one
        for one in machine.report.outcomes
    )
    report = machine.checked(machine.lock(judged(machine, broken))).report()
    [finding] = [one for one in report.findings if one.id == "unexplained-failure"]
    assert finding.why.startswith(f"locked {CREATED[:10]}: ")


LACKING = {
    "python": "norm.rmsnorm",
    "package:torch": "norm.rmsnorm",
    "package:vllm": "norm.rmsnorm",
    "package:flashinfer-python": "norm.rmsnorm",
    "knowledge:norm.rmsnorm": "norm.rmsnorm",
    "probe:norm.rmsnorm": "norm.rmsnorm",
    "variable:LD_LIBRARY_PATH": "norm.rmsnorm",
    "driver": "norm.rmsnorm",
    "gpu:sm90": "norm.rmsnorm",
    "gpu:sm90:2": "comm.allreduce_fusion",
    "peers:sm90:2": "comm.allreduce_fusion",
    "tracing": "comm.allreduce_fusion",
    "module:norm": "norm.rmsnorm",
    "python:norm.rmsnorm": "norm.rmsnorm",
}


@pytest.mark.parametrize(("name", "feature"), LACKING.items(), ids=LACKING)
def test_a_row_that_names_less_than_its_kind_rests_on_is_not_believed(machine, name, feature):
    lock = machine.lock()
    check = machine.checked(without(lock, feature, name))
    assert check.to_measure() == (Key(feature, 90),)
    assert f"does not say that it rests on {name}" in rows(check.report())[feature].why


@pytest.mark.parametrize("name", ["startup", "loads:torch", "loads:flashinfer", "python:import.flashinfer"])
def test_an_import_that_names_less_is_not_believed_nor_is_what_needs_it(machine, name):
    report = machine.checked(without(machine.lock(), "import.flashinfer", name)).report()
    found = rows(report)
    assert found["import.flashinfer"].verdict is Verdict.UNKNOWN
    assert found["norm.rmsnorm"].verdict is Verdict.UNKNOWN
    assert report.gate.code == 3


def without(lock, feature, name):
    """The lock whose row of this feature does not name this input or group."""
    cut = {
        row.key: replace(
            row,
            inputs=tuple(one for one in row.inputs if one != name),
            groups=tuple(one for one in row.groups if one != name),
        )
        for row in lock.rows
        if row.feature == feature
    }
    assert all(cut[row.key] != row for row in lock.rows if row.key in cut)
    return replace(lock, rows=tuple(cut.get(row.key, row) for row in lock.rows))


def test_an_import_that_changed_leaves_nothing_that_needs_it_as_working(machine):
    lock = machine.lock()
    write(machine.site / "tvm_ffi/__init__.py", "raise ImportError\n")
    check = machine.checked(lock)
    assert check.to_measure() == (Key("import.flashinfer", None),)
    report = check.report()
    found = rows(report)
    assert found["import.torch"].verdict is Verdict.WORKS
    assert {found[name].verdict for name in ROWS if name != "import.torch"} == {Verdict.UNKNOWN}
    assert "import.flashinfer may not work any more" in found["sampling.top_k_top_p"].why
    assert report.gate.code == 3


def test_rows_alone_are_measured_again_where_an_import_changed_that_is_not_asked_for(machine):
    lock = machine.lock()
    write(machine.site / "tvm_ffi/__init__.py", "raise ImportError\n")
    check = machine.checked(lock, Request(depth=Depth.RUN, features=("sampling.top_k_*",)))
    assert check.to_measure() == (Key("sampling.top_k_top_p", 90),)
    report = check.report()
    assert (
        "import.flashinfer may not hold any more: since it was locked: tvm_ffi as flashinfer loads it"
        in report.features[0].why
    )
    assert report.gate.code == 3


def test_rows_that_are_locked_without_the_imports_rest_on_what_these_load(machine):
    import msgspec

    kept = tuple(one for one in machine.report.outcomes if not one.feature.startswith("import."))
    lock = machine.lock(judged(machine, kept))
    assert "import.torch" not in {row.feature for row in lock.rows}
    assert set(machine.checked(lock).standing.valid) == {row.key for row in lock.rows}
    before = msgspec.json.encode(lock)
    write(machine.site / "tvm_ffi/__init__.py", "raise ImportError\n")
    assert machine.touched(msgspec.json.decode(before, type=type(lock))) == {
        name for name in ROWS if not name.startswith("import.")
    }


def test_a_lock_that_was_made_before_imports_were_asked_proves_no_import(machine):
    lock = machine.lock()
    groups = {name: names for name, names in lock.groups.items() if not name.startswith("loads:")}
    old = tuple(
        replace(
            row,
            inputs=tuple(name for name in row.inputs if name not in ("startup", "workspace")),
            groups=tuple(name for name in row.groups if name in groups),
        )
        for row in lock.rows
    )
    check = machine.checked(replace(lock, rows=old, groups=groups, loads={}))
    assert check.to_measure() == (Key("import.flashinfer", None), Key("import.torch", None))


@pytest.mark.parametrize(
    ("failing", "kept"), [("torch", set()), ("flashinfer", {"import.torch"})], ids=["torch", "flashinfer"]
)
def test_what_cannot_be_imported_while_the_lock_is_made_is_not_locked_as_working(machine, failing, kept):
    machine.errors = {failing: "ValueError: no"}
    lock = machine.lock()
    assert {row.feature for row in lock.rows} == kept
    assert f"{failing} cannot be imported now: ValueError: no" in lock.left_out["norm.rmsnorm on SM90"]


def test_what_could_not_be_read_was_never_as_it_was(machine):
    lock = machine.lock()
    for value in ("unreadable: Permission denied", "not known to this fi-doctor"):
        from fi_doctor.locking import compare

        now = {**machine.now(lock), "cache:norm": value}
        lock_ = replace(lock, inputs={**lock.inputs, "cache:norm": value})
        assert compare.changed(lock_, now) == {"cache:norm"}
