"""Every sample of every fault, as pytest takes them."""

from __future__ import annotations

import io

import pytest

from fi_doctor.explaining.diagnose import Source, diagnose
from fi_doctor.knowledge import faults
from fi_doctor.model import Explanation, Sample

FAULTS = faults.load_all()


def cases(kind: str) -> list:
    return [
        pytest.param(fault, sample, id=f"{fault.id}-{at}")
        for fault in FAULTS
        for at, sample in enumerate(getattr(fault, kind))
    ]


def diagnosed(log: str, environment: str = "") -> Explanation:
    return diagnose([Source("log", io.BytesIO(f"{environment}\n{log}\n".encode()))])


def of(sample: Sample) -> Explanation:
    return diagnosed(sample.log, sample.environment)
