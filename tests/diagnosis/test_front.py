"""An option that vLLM does not have is not passed over: no deployment is said to run with it."""

import factory as make
import pytest
from msgspec.structs import replace
from test_deployment import REPORT, choice, judge, wanted

from fi_doctor.diagnosis import front, given
from fi_doctor.model import Missing, Severity
from fi_doctor.model.deployed import Effect

FLAGS = {
    "--moe-backend": "a.py:1",
    "--enable-prefix-caching": "a.py:2",
    "--attention-config": "a.py:3",
    "-tp": "a.py:4",
}


@pytest.mark.parametrize(
    ("name", "is_known"),
    [
        ("--moe-backend", True),
        ("--no-enable-prefix-caching", True),
        ("--attention-config.backend", True),
        ("--port", True),
        ("--no-enable-log-outputs", True),
        ("", True),
        ("--mo-backend", False),
        ("--moe", False),
        ("-dpx", False),
    ],
)
def test_an_option_is_known_of_the_engine_or_of_the_server(name, is_known):
    assert front.unknown([name], make.vllm(flags=FLAGS)) == (() if is_known else (name,))


def test_where_the_engine_s_options_are_not_known_nothing_is_said():
    assert front.unknown(["--x"], Missing(reason="vllm is not installed")) == ()
    assert front.unknown(["--x"], make.vllm(flags={})) == ()


def test_a_deployment_with_an_unknown_option_is_not_said_to_run():
    found = judge(choice(), of=wanted(flags={"--frobnicate": "", "--port": "8000"}))
    assert (found.effect, found.why) == (
        Effect.UNKNOWN,
        "it cannot be told whether it works: --frobnicate: no option of vLLM 0.33.0 that is known",
    )
    assert judge(choice(), of=wanted(flags={"--port": "8000"})).effect is Effect.FLASHINFER


@pytest.mark.parametrize(("severity", "effect"), [(Severity.ERROR, Effect.FAILS), (Severity.WARNING, Effect.UNKNOWN)])
def test_an_option_of_another_release_fails(severity, effect):
    title = "vLLM 0.33.0 has no --swap-space (--vllm-args)"
    lost = replace(REPORT.findings[0], id=given.UNKNOWN, severity=severity, title=title)
    found = judge(choice(), of=wanted(flags={"--swap-space": "4"}), report=replace(REPORT, findings=(lost,)))
    assert found.effect is effect
    assert (found.why == "it will fail: vLLM 0.33.0 does not know --swap-space") is (effect is Effect.FAILS)
