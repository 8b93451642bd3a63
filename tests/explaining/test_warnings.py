"""What was only warned of is no sure cause where the server went on, or ended of something else."""

from __future__ import annotations

import pytest
from fault_cases import diagnosed

from fi_doctor.model import Confidence

UNSUPPORTED = "WARNING 11-28 10:01:00 [a.py:1] torch._dynamo.exc.Unsupported: falling back"
CRASH = "ERROR 11-28 10:01:01 [core.py:9] RuntimeError: CUDA error: an illegal memory access was encountered"
MEMORY = "WARNING 11-28 10:01:00 [a.py:1] torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB, retrying"
STARTED = "INFO:     Application startup complete."
OK = 'INFO:     10.0.0.1:55 - "POST /v1/completions HTTP/1.1" 200 OK'


def test_the_error_that_ends_a_process_comes_before_a_warning():
    found = diagnosed(f"{UNSUPPORTED}\n{CRASH}")
    assert "illegal" in found.diagnoses[0].matched[0].text


@pytest.mark.parametrize("after", [STARTED, OK, "ValueError: nobody knows this"])
def test_a_warning_is_hardly_a_cause_where_the_log_goes_on(after):
    first = diagnosed(f"{MEMORY}\n{after}").diagnoses[0]
    assert (first.cause, first.confidence) == (diagnosed(MEMORY).diagnoses[0].cause, Confidence.LOW)


def test_a_warning_at_the_end_of_a_log_and_an_error_after_the_start_stay_sure():
    error = MEMORY.replace("WARNING", "ERROR")
    assert diagnosed(MEMORY).diagnoses[0].confidence is Confidence.HIGH
    assert diagnosed(f"{STARTED}\n{error}").diagnoses[0].confidence is Confidence.HIGH
