"""IOMMU and ACS as /sys tells them, in a folder that looks like it."""

import os

import pytest

from fi_doctor.facts.pci import read_acs_bridges, read_iommu, redirects
from fi_doctor.model import Missing

BUS = "00000000:0F:00.0"


def config(*, acs=None, size=4096):
    """A configuration space with an AER capability, then that of ACS with this control register, if any."""
    space = bytearray(4096)
    space[0x100:0x104] = (0x0001 | 1 << 16 | (0x148 if acs is not None else 0) << 20).to_bytes(4, "little")
    if acs is not None:
        space[0x148:0x14C] = (0x000D | 1 << 16).to_bytes(4, "little")
        space[0x14C:0x14E] = (0x5F).to_bytes(2, "little")  # what it is capable of says nothing
        space[0x14E:0x150] = acs.to_bytes(2, "little")
    return bytes(space[:size])


@pytest.fixture
def sysfs(tmp_path):
    """A GPU below a port of a switch below a root port; gives the folder of each."""
    port = tmp_path / "sys/devices/pci0000:00/0000:00:01.0"
    switch = port / "0000:0e:00.0"
    gpu = switch / "0000:0f:00.0"
    gpu.mkdir(parents=True)
    port.joinpath("config").write_bytes(config(acs=0))
    switch.joinpath("config").write_bytes(config())
    (tmp_path / "sys/bus/pci/devices").mkdir(parents=True)
    (tmp_path / "sys/bus/pci/devices/0000:0f:00.0").symlink_to(gpu)
    return port, switch, gpu


@pytest.mark.parametrize(
    ("acs", "said"), [(0, False), (0x1, False), (0x4, True), (0x8, True), (0x1D, True), (None, False)]
)
def test_a_bridge_redirects_where_its_control_register_says_so(acs, said):
    assert redirects(config(acs=acs)) is said


def test_a_configuration_that_is_cut_says_nothing():
    assert redirects(config(acs=0x1D, size=64)) is None
    assert redirects(config(acs=0x1D, size=256)) is None


def test_capabilities_that_point_at_each_other_end():
    space = bytearray(config(acs=0))
    space[0x148:0x14C] = (0x0002 | 1 << 16 | 0x100 << 20).to_bytes(4, "little")
    assert redirects(bytes(space)) is False


def test_the_bridges_above_a_gpu_that_redirect_are_named(sysfs, tmp_path):
    assert read_acs_bridges(BUS, tmp_path) == ()
    sysfs[0].joinpath("config").write_bytes(config(acs=0x1D))
    assert read_acs_bridges(BUS, tmp_path) == ("0000:00:01.0",)


def test_a_bridge_that_only_root_may_read_is_a_reason(sysfs, tmp_path):
    sysfs[1].joinpath("config").write_bytes(config(size=64))
    said = read_acs_bridges(BUS, tmp_path)
    assert said == Missing(reason="the whole configuration of bridge 0000:0e:00.0 can be read by root only")


@pytest.mark.parametrize("kind", ["identity", "DMA", "DMA-FQ"])
def test_the_type_of_the_iommu_group_is_read(sysfs, tmp_path, kind):
    group = tmp_path / "sys/kernel/iommu_groups/7"
    group.mkdir(parents=True)
    group.joinpath("type").write_text(f"{kind}\n")
    sysfs[2].joinpath("iommu_group").symlink_to(group)
    assert read_iommu(BUS, tmp_path) == kind


def test_without_a_group_there_is_no_iommu(sysfs, tmp_path):
    assert sysfs[2].is_dir()
    assert read_iommu(BUS, tmp_path) == "none"


@pytest.mark.parametrize("read", [read_iommu, read_acs_bridges])
def test_what_is_not_there_is_a_reason(read, tmp_path):
    assert read(BUS, tmp_path).reason.endswith("0000:0f:00.0 is not there")
    assert "is not a PCI address" in read("(garbled)", tmp_path).reason
    assert read(Missing(reason="lost"), tmp_path) == Missing(reason="lost")


def test_a_group_that_does_not_tell_its_type_is_a_reason(sysfs, tmp_path):
    sysfs[2].joinpath("iommu_group").mkdir()
    assert read_iommu(BUS, tmp_path).reason.endswith(f"type cannot be read: {os.strerror(2)}")
