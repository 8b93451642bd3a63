"""The compute capability majors that FlashInfer's generators name, read from real wheels and from odd sources."""

import os

import pytest
from flashinfer_wheels import VERSIONS

from fi_doctor.facts.majors import read_majors
from fi_doctor.facts.symbols import Symbols
from fi_doctor.model import Majors, Missing

KNOWN = {  # by version: what the generators' sources say, read by hand
    "flashinfer.jit.comm.gen_trtllm_comm_module": {
        "0.5.2": (9, 10), "0.5.3": (9, 10), "0.6.7.post3": (9, 10), "0.7.2.post1": (9, 10, 12),
    },
    "flashinfer.jit.fused_moe.gen_trtllm_gen_fused_moe_sm100_module": {
        "0.5.2": (10,), "0.5.3": (10,), "0.6.7.post3": (10, 12), "0.7.2.post1": (10, 12),
    },
    "flashinfer.jit.xqa.gen_xqa_module": {
        "0.5.2": (9, 10, 11, 12), "0.5.3": (9, 10, 11, 12), "0.6.7.post3": (9, 10, 11, 12), "0.7.2.post1": (9, 10, 12),
    },
    "flashinfer.jit.norm.gen_norm_module": dict.fromkeys(VERSIONS, ()),
}  # fmt: skip


@pytest.mark.wheels
@pytest.mark.parametrize("name", KNOWN)
@pytest.mark.parametrize("version", VERSIONS)
def test_a_generator_of_a_real_wheel_says_its_majors(name, version, unpacked):
    root = unpacked(version)
    found = read_majors(root, Symbols(root, version).where(name))
    assert isinstance(found, Majors)
    assert found.majors == KNOWN[name][version]
    file, _, line = found.source.rpartition(":")
    if found.majors:
        at = (root / file).read_text().splitlines()[int(line) - 1]
        assert "supported_major_versions" in at


@pytest.mark.parametrize(
    ("returned", "majors"),
    [
        ("flags(supported_major_versions=[9])", (9,)),
        ("flags(\n        supported_major_versions=[\n            10,\n            11,\n        ]\n    )", (10, 11)),
        ("flags(supported_major_versions=MAJORS)", (8, 9)),
        ("flags(supported_major_versions=list(MAJORS))", (8, 9)),
        ("flags(supported_major_versions=[9]) if x else flags(supported_major_versions=[12])", (9, 12)),
        ("flags(supported_major_versions=None)", ()),
        ("flags()", ()),
    ],
)
def test_every_way_to_write_the_list_is_read(tmp_path, returned, majors):
    other = "def gen_b():\n    f(supported_major_versions=[7])\n"
    (tmp_path / "a.py").write_text(f"MAJORS = (8, 9)\n\n\ndef gen_a_module():\n    return {returned}\n\n{other}")
    found = read_majors(tmp_path, "a.py:4")
    assert isinstance(found, Majors)
    assert found.majors == majors


@pytest.mark.parametrize("value", ["compute()", "OTHER", "[*MAJORS, 10]"])
def test_a_list_that_only_running_would_tell_is_missing(tmp_path, value):
    (tmp_path / "a.py").write_text(f"def gen_a_module():\n    return flags(supported_major_versions={value})\n")
    found = read_majors(tmp_path, "a.py:1")
    assert isinstance(found, Missing)
    assert "cannot be read" in found.reason


def test_a_file_that_is_not_there_or_cut_is_missing(tmp_path):
    assert isinstance(read_majors(tmp_path, "a.py:1"), Missing)
    (tmp_path / "a.py").write_text("def gen_a_module(\n")
    assert isinstance(read_majors(tmp_path, "a.py:1"), Missing)
    assert read_majors(tmp_path, Missing(reason="gone", absent=True)) == Missing(reason="gone", absent=True)


@pytest.mark.parametrize(
    "value", ["9", "range(9)", "1e400", "[None]", "[9, [10]]", '["a"]', '"90"', "[9.5]", "{9: 1}", "without([9])"]
)
def test_what_is_no_list_of_majors_is_missing_and_never_a_guess(tmp_path, value):
    (tmp_path / "a.py").write_text(f"def gen_a_module():\n    return flags(supported_major_versions={value})\n")
    assert isinstance(read_majors(tmp_path, "a.py:1"), Missing)


def test_a_pipe_in_the_place_of_a_file_is_missing_at_once(tmp_path):
    os.mkfifo(tmp_path / "a.py")
    found = read_majors(tmp_path, "a.py:1")
    assert isinstance(found, Missing)
    assert "is not a file" in found.reason
