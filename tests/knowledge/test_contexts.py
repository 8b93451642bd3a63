"""What releases of FlashInfer compile for, and which packages they take beside them, by what is shipped."""

from __future__ import annotations

import pytest

from fi_doctor.facts import architectures
from fi_doctor.facts.flashinfer import read_cccl
from fi_doctor.knowledge import companions, contexts, pins
from fi_doctor.model import Missing


@pytest.mark.parametrize(
    ("release", "sm", "cuda", "tags"),
    [
        ("0.5.3", 90, "12.8", ("90a",)),
        ("0.5.3", 120, "12.8", ("120a",)),
        ("0.6.18", 120, "12.9", ("120f",)),
        ("0.7.2.post1", 120, "12.8", ("120a",)),
        ("0.7.2.post1", 120, "13.0", ("120f",)),
        ("0.7.2.post1", 80, "13.0", ("80",)),
    ],
)
def test_a_release_compiles_for_a_gpu(release, sm, cuda, tags):
    assert contexts.tags(release, sm, cuda) == tags


@pytest.mark.parametrize(
    ("release", "sm", "cuda", "why"),
    [
        ("0.6.18", 120, "12.8", "SM 12.x requires CUDA >= 12.9"),
        ("0.7.2.post1", 121, "12.8", "SM 12.1+ requires CUDA >= 12.9"),
        ("0.4.1", 90, "12.8", "flashinfer-python 0.4.1 with CUDA 12.8 is not in the shipped data"),
        ("0.5.3", 90, "10.2", "flashinfer-python 0.5.3 with CUDA 10.2 is not in the shipped data"),
    ],
)
def test_why_it_compiles_nothing(release, sm, cuda, why):
    found = contexts.tags(release, sm, cuda)
    assert isinstance(found, Missing)
    assert why in found.reason


def test_every_release_is_shipped():
    assert set(contexts.load()) == set(pins.load()["flashinfer-python"])


def test_the_headers_that_a_release_brings():
    assert contexts.cccl("0.6.9") == Missing(reason="it brings no CCCL of its own", absent=True)
    assert contexts.cccl("0.6.10.post1") == "3.3.2"
    assert not contexts.cccl("0.4.1").absent


@pytest.mark.wheels
@pytest.mark.parametrize("release", ["0.5.3", "0.7.2.post1"])
def test_what_is_shipped_is_what_the_files_say(release, unpacked):
    """Else benchmarks/contexts.py is to be run."""
    root = unpacked(release)
    for sm, answers in contexts.load()[release].sms.items():
        for one in answers:
            found = architectures.for_capabilities(root, (int(sm),), one.since)
            assert (found.reason if isinstance(found, Missing) else found) == (one.why or one.tags)
    cccl = read_cccl(root)
    assert isinstance(cccl, Missing) or contexts.cccl(release) == cccl


@pytest.mark.parametrize(
    ("flashinfer", "name", "version", "fits", "effect"),
    [
        ("0.6.7.post3", companions.CUBIN, "0.6.7.post3", True, "import flashinfer raises"),
        ("0.6.7.post3", companions.CUBIN, "0.6.7", False, "import flashinfer raises"),
        ("0.7.1", companions.CUBIN, "0.7.0", False, "import flashinfer raises"),
        ("0.7.2.post1", companions.CUBIN, "0.7.1", False, "the package is ignored"),
        ("0.6.7", companions.JIT_CACHE, "0.6.7.post3+cu130", True, "import flashinfer raises"),
        ("0.7.2", companions.JIT_CACHE, "0.7.2.post1+cu130", False, "the package is ignored"),
        ("0.7.2.post1", companions.JIT_CACHE, "0.7.2.post1+cu130", True, "the package is ignored"),
    ],
)
def test_a_package_beside_it_fits_or_does_not(flashinfer, name, version, fits, effect):
    [check] = companions.checks(flashinfer, {name: version})
    assert check.ok is fits
    assert check.effect.startswith(effect)


def test_of_a_release_that_is_not_known_nothing_is_said():
    assert companions.checks("0.4.1", {companions.CUBIN: "0.4.0"}) == ()


@pytest.mark.wheels
@pytest.mark.parametrize("release", ["0.5.3", "0.7.2.post1"])
@pytest.mark.parametrize("name", [companions.CUBIN, companions.JIT_CACHE])
def test_the_installed_file_says_the_same(release, name, unpacked, tmp_path):
    text = (unpacked(release) / "jit" / "env.py").read_text()
    said = "Ignoring incompatible" if release == "0.7.2.post1" else "does not match"
    assert said in text
    [check] = companions.checks(release, {name: "0.0.1"})
    assert ("raises" in check.effect) is (said == "does not match")
