"""fi-doctor plan: the words of both ends, the formats, the exit code."""

from __future__ import annotations

import functools
import inspect
import json
import re

import jsonschema
import pytest
from cli_command import in_three_parts
from msgspec.structs import replace

import fi_doctor
from fi_doctor import knowing
from fi_doctor.cli import moving, planning, schemas
from fi_doctor.errors import UsageError
from fi_doctor.reports import plans

FROM = "2xh200-flashinfer-0.5.3"


@functools.cache
def loaded():
    return knowing.load(None, None)


def made(to, example=FROM, **asked):
    asked = planning.AskedPlan(to=(to,) if isinstance(to, str) else to, example=example, **asked)
    return planning.made(asked, loaded, print)


@pytest.fixture(scope="module")
def lost():
    return made("b200,vllm=0.33.0,driver=570", required=("moe.bf16", "gemm.fp4"))


@pytest.mark.parametrize(
    ("asked", "said", "near"),
    [
        ({"to": ""}, "--to names no move", "--to b200"),
        ({"to": ()}, "--to names no move", "--to b200"),
        ({"to": "b2000"}, "--to: no GPU is known as 'b2000'", "--to b200"),
        ({"to": "rtx 6000"}, "fits Quadro RTX 6000 (SM75)", "--to rtx-pro-6000"),
        ({"to": "vlm=0.33.0"}, "did you mean vllm", "fi-doctor plan --to"),
        ({"to": "vllm=0.99"}, "vllm=0.99: of that release nothing is known", "--to"),
        ({"to": "sm=95"}, "sm=95: no GPU has", "--to sm=90"),
        ({"to": "cuda=14,driver=535"}, "cuda=14: no such release", "cuda=12.2"),
        ({"to": ("b200", "h100")}, "gpu is given twice", "leave one"),
        ({"to": "b200", "example": None, "source": "nosuch"}, "--from: no GPU is known as 'nosuch'", "--from"),
        ({"to": "b200", "source": "h100"}, "--from and --example", "leave one"),
        ({"to": "b200", "python": "/usr/bin/python3"}, "--python: nothing is examined with --example", "leave one"),
        ({"to": "b200", "required": ("attention.decod",)}, "no feature is called", "--require attention.decode"),
    ],
)
def test_words_that_mean_nothing_name_what_is_near(asked, said, near):
    with pytest.raises(UsageError) as raised:
        made(**asked)
    assert said in raised.value.what
    assert near in raised.value.todo
    assert "--target" not in f"{raised.value}{raised.value.todo}"


def test_what_is_not_named_is_as_before_and_so_many_gpus():
    found = made("b200")
    assert found.before.told[0] == "2 x NVIDIA H200 (SM90)"
    assert found.after.told[0] == "2 x NVIDIA B200 (SM100)"
    assert found.after.told[1:] == found.before.told[1:]
    assert made("b200,gpus=8").after.told[0] == "8 x NVIDIA B200 (SM100)"
    assert made("gpus=4").after.told[0] == "4 x NVIDIA H200 (SM90)"


def test_the_code_says_whether_something_required_is_lost(lost):
    assert (lost.code, lost.reason) == (1, "required and not there after the move: gemm.fp4, moe.bf16")
    assert made("b200,vllm=0.33.0", required=("gemm.fp4",)).code == 0
    assert made("b200").reason == "nothing was required"


def test_a_row_that_is_at_neither_end_counts_only_by_its_own_name():
    found = made("driver=590", required=("gemm.*",))
    assert (found.code, found.search) == (0, None)
    assert {str(one.holds) for one in found.required if one.after.is_against} == {"allowed"}
    assert "only a glob names it" in plans.render(found)
    named = made("driver=590", required=("gemm.*", "gemm.mxfp8"))
    assert (named.code, named.reason) == (1, "required and not there after the move: gemm.mxfp8")


def test_what_only_the_old_gpu_keeps_is_kept_by_staying():
    found = made("a100", example="h200", required=("moe.bf16",))
    for told in (plans.render(found), plans.markdown(found)):
        assert "to stay as it is" in " ".join(told.split())
        assert not re.search(r"--to[ `]*$", told, re.MULTILINE)


def test_it_is_what_its_schema_says(lost):
    jsonschema.Draft202012Validator(json.loads(schemas.text("plan"))).validate(json.loads(plans.to_json(lost)))


@pytest.mark.parametrize(("form", "render"), [("console", plans.render), ("markdown", plans.markdown)])
def test_a_plan_looks_as_its_golden_file_says(form, render, lost, golden):
    # How many there are to try is another thing with every release that is shipped.
    searched = replace(lost.search, tried=46, untold=42, dimensions=("vllm (15)", "nvcc (23)", "driver (6)"))
    golden(f"plans/h200-to-b200.{form}", render(replace(lost, search=searched)))


def test_no_markup_of_a_file_is_obeyed(lost):
    hostile = replace(lost, reason="<b>`x`\x1b[1m")
    assert "<b>" not in plans.markdown(hostile)
    assert "\x1b" not in plans.markdown(hostile) + plans.render(hostile)


def test_programs_get_it_as_a_value(capfd, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    found = fi_doctor.plan(to="b200", example=FROM, require="gemm.fp8_block_*")
    assert [one.feature for one in found.required] == ["gemm.fp8_block_sm90"]
    assert capfd.readouterr() == ("", "")


def test_the_arguments_are_the_options_of_the_command():
    asked = {*inspect.signature(fi_doctor.plan).parameters} - {"tell"}
    assert asked == {*inspect.signature(moving.plan).parameters} - {"format_", "output"}


def test_the_command_writes_it_and_ends_with_its_code(doctor, tmp_path):
    done = doctor(
        "plan", "--from", "h100,vllm=0.17.1,driver=580,cuda=12.8", "--to", "vllm=0.33.0", "-o", tmp_path / "a.json"
    )
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    assert done.stderr.endswith("fi-doctor: nothing was required (exit 0)\n")
    found = json.loads((tmp_path / "a.json").read_text())
    assert found["before"]["told"][:4] == ["NVIDIA H100 (SM90)", "driver 580", "nvcc 12.8", "vllm 0.17.1"]
    pin = next(pin for pin in found["pins"] if pin["what"] == "flashinfer-python")
    assert (pin["before"], pin["after"], pin["is_asked"]) == ("0.6.4", "0.7.2.post1", False)
    assert doctor("plan", "--example", FROM, "--to", "driver=470", "--require", "norm.rmsnorm").returncode == 1
    assert in_three_parts(doctor("plan").stderr)["try"] == "fi-doctor plan --to b200,vllm=0.33.0"


def test_a_secret_is_hidden_wherever_it_stands(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "hold-this-back-1")
    (tmp_path / "serve.env").write_text("VLLM_FLASHINFER_ALLREDUCE_BACKEND=hold-this-back-1\n")
    found = made("vllm=0.33.0", env_files=(str(tmp_path / "serve.env"),))
    [setting] = [one for one in found.settings if one.name == "VLLM_FLASHINFER_ALLREDUCE_BACKEND"]
    assert (setting.after, setting.is_set) == ("refused", True)
    assert "hold-this-back-1" not in plans.to_json(found)
