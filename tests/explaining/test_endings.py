"""How a process ended is told as that: it follows from something else, and never stands before it."""

from __future__ import annotations

import pytest
from fault_cases import diagnosed

NVCC = "RuntimeError: Could not find nvcc and default cuda_home='/usr/local/cuda' doesn't exist"
SYSTEMD = "Nov 20 10:00:00 gpu01 systemd[1]: vllm.service: Main process exited, code="
ENDINGS = {
    "kubectl describe": "  Warning  BackOff  3s  kubelet  Back-off restarting failed container vllm in pod v-0",
    "kubectl get": "vllm-0   0/1   CrashLoopBackOff   5   3m",
    "a container's state": "    Last State:  Terminated\n      Reason:       Error\n      Exit Code:    1",
    "docker compose": "vllm-1 exited with code 1",
    "docker ps": "4f2a vllm Exited (1) 3 minutes ago",
    "systemd": f"{SYSTEMD}exited, status=1/FAILURE",
}
SIGNALS = {
    "vllm-1 exited with code 137": "process-killed",
    f"{SYSTEMD}killed, status=9/KILL": "process-killed",
    "    Reason:       OOMKilled\n      Exit Code:    137": "host-out-of-memory",
    "vllm-1 exited with code 139": "kernel-crash-unresolved",
    "vllm-1 exited with code 134": "kernel-crash-unresolved",
    f"{SYSTEMD}dumped, status=11/SEGV": "kernel-crash-unresolved",
}
IN_ORDER = (
    "vllm-1 exited with code 0",
    "vllm-1 exited with code 143",
    "vllm-1 exited with code 130",
    f"{SYSTEMD}killed, status=15/TERM",
    f"{SYSTEMD}exited, status=0/SUCCESS",
    "      Exit Code:    0",
)


@pytest.mark.parametrize("name", ENDINGS)
def test_an_ending_is_no_cause_and_it_is_said_where_the_cause_is(name):
    found = diagnosed(ENDINGS[name])
    assert (found.diagnoses, [error.follows for error in found.errors]) == ((), [True])
    assert any(one.endswith("has what it said before it ended") for one in found.helps)


@pytest.mark.parametrize("text", SIGNALS)
def test_a_signal_says_what_it_says_and_is_not_sure(text):
    [found] = diagnosed(text).diagnoses
    assert (found.cause, found.flashinfer_at_fault) == (SIGNALS[text], False)
    assert found.confidence.value != "high"


@pytest.mark.parametrize("text", [*SIGNALS, *ENDINGS.values()])
def test_an_ending_stands_behind_the_cause(text):
    assert diagnosed(f"{text}\n{NVCC}").diagnoses[0].cause == "nvcc-not-found"


@pytest.mark.parametrize("text", IN_ORDER)
def test_what_ends_in_order_is_no_error(text):
    found = diagnosed(text)
    assert (found.diagnoses, found.errors) == ((), ())
