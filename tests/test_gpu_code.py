"""On which GPUs cubins and PTX run, by the suffixes of their architectures."""

from __future__ import annotations

import factory as make
import pytest

from fi_doctor.model import Binary
from fi_doctor.model.gpu_code import Reach, cuda_of_ptx, of_architecture, of_file

NATIVE, JIT, NOT, UNSURE = Reach.NATIVE, Reach.JIT, Reach.NOT, Reach.UNSURE


@pytest.mark.parametrize(
    ("name", "sm", "reach"),
    [
        ("sm_80", 80, NATIVE),
        ("sm_80", 89, NATIVE),
        ("sm_86", 80, NOT),
        ("sm_80", 90, NOT),
        ("sm_90a", 90, NATIVE),
        ("sm_90a", 100, NOT),
        ("sm_100a", 103, NOT),
        ("sm_100f", 103, NATIVE),
        ("sm_103f", 100, NOT),
        ("sm_100f", 110, NOT),
        ("sm_100f", 120, NOT),
        ("sm_120a", 121, NOT),
        ("sm_120f", 121, NATIVE),
        ("sm_100", 103, NATIVE),
        ("compute_80", 80, JIT),
        ("compute_80", 120, JIT),
        ("compute_90", 80, NOT),
        ("compute_90a", 90, JIT),
        ("compute_90a", 100, NOT),
        ("compute_100f", 103, JIT),
        ("compute_100f", 120, NOT),
        ("sm_80", 87, UNSURE),  # Jetson: no binary compatibility with others
        ("sm_87", 89, UNSURE),
        ("sm_87", 87, NATIVE),
        ("lto_80", 80, UNSURE),
    ],
)
def test_code_runs_where_its_suffix_lets_it(name, sm, reach):
    assert of_architecture(name, sm) is reach


@pytest.mark.parametrize(
    ("version", "cuda"),
    [("9.0", (13, 0)), ("8.8", (12, 9)), ("8.7", (12, 8)), ("8.5", (12, 5)), ("7.8", (11, 8)), ("x", None)],
)
def test_ptx_names_the_cuda_that_brought_it(version, cuda):
    assert cuda_of_ptx(version) == cuda


@pytest.mark.parametrize(
    ("units", "sm", "driver", "reach"),
    [
        ({"sm_80 compute_80": 1}, 90, "13.0", JIT),
        ({"sm_80 compute_80": 1}, 90, "12.9", Reach.REFUSED),
        ({"sm_80 compute_80": 1}, 90, make.missing(), JIT),
        ({"sm_80 compute_80": 1, "sm_90a": 1}, 90, "12.9", NATIVE),
        ({"sm_80": 1}, 87, "13.0", UNSURE),
        ({"sm_80": 1, "sm_87": 1}, 87, "13.0", NATIVE),
        ({"sm_100f": 4}, 90, "13.0", NOT),
        ({}, 90, "13.0", None),
    ],
)
def test_a_file_reaches_what_the_best_of_its_units_does(units, sm, driver, reach):
    binary = Binary(path="/x.so", owner="vllm", units=units, ptx={"compute_80": "9.0"}, needed=())
    assert of_file(binary, sm, driver) is reach
