import machine_samples
import pytest


@pytest.fixture
def bare_facts():
    return machine_samples.bare_facts()


@pytest.fixture
def flashinfer_facts():
    return machine_samples.flashinfer_facts()
