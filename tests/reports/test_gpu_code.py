"""What is said of binaries: counts for packages, everything for files that were named."""

import binary_samples as samples
import pytest

from fi_doctor.model import Missing
from fi_doctor.reports.answer import visible_gpus
from fi_doctor.reports.gpu_code import named, of_package

FILES = {
    "/v/vllm/_C.abi3.so": samples.binary("sm_90a", "compute_80"),
    "/v/vllm/fa2.so": samples.binary("sm_80", "compute_80"),
    "/v/vllm/qutlass.so": samples.binary("sm_100f"),
    "/v/vllm/cut.so": Missing(reason="/v/vllm/cut.so is empty"),
    "/mine/own.so": samples.binary("sm_80", package="--binary", not_found=("libcudart.so.12",)),
    "/mine/host.so": samples.binary(package="--binary"),
    "/mine/new.so": samples.binary("sm_90", package="--binary", not_found=Missing(reason="ldconfig does not answer")),
}


def test_of_a_package_the_files_are_counted_by_how_they_load():
    facts = samples.on(90, FILES)
    said = "vllm's GPU code: 1 file for SM90, 1 file by PTX JIT on SM90, 1 file not for SM90"
    assert of_package(facts, visible_gpus(facts), "vllm") == said
    assert of_package(facts, visible_gpus(facts), "torch") == ""
    assert of_package(facts, [], "vllm") == ""


@pytest.mark.parametrize("sm", [90, 80])
def test_of_a_named_file_all_is_said(sm):
    facts = samples.on(sm, FILES)
    here, there = ("native", "not at all") if sm == 90 else ("not at all", "native")
    new = "what it needs is not known: ldconfig does not answer"
    assert list(named(facts, visible_gpus(facts))) == [
        "/mine/host.so: no GPU code; linked with libcudart.so.13, all found",
        f"/mine/new.so: sm_90; on SM{sm} {here}; {new}",
        f"/mine/own.so: sm_80; on SM{sm} {there}; not found: libcudart.so.12",
    ]
