"""What conditions say of GPUs that have to reach each other where something of it is not known."""

import factory as make
import pytest
from msgspec.structs import replace

from fi_doctor.conditions import Truth, View, fill, holds
from fi_doctor.model import PeerLink

LOST = make.missing("GPU is lost")
ANY = {"matches": ""}


def link(one, other, **changes):
    base = PeerLink(one=f"GPU-{one:08d}", other=f"GPU-{other:08d}", pcie="SYS", nvlink=True, read="ok", write="ok")
    return replace(base, **changes)


def facts(*links, count=2, **changes):
    gpus = (make.gpu(index=index, **changes) for index in range(count))
    return make.facts(gpus=make.gpu_facts(*gpus, links=tuple(links)))


def truth(condition, of):
    return holds(condition, View(of))


@pytest.mark.parametrize(
    "name", ["pairs_without_nvlink", "peers_refused", "fewer_nvlinks", "iommu_translates", "acs_redirects"]
)
def test_what_was_not_read_is_not_known(name):
    assert truth({name: ANY}, make.facts(gpus=make.gpu_facts(make.gpu(), make.gpu(index=1)))) is Truth.UNKNOWN


def test_one_pair_that_is_not_known_hides_no_other():
    assert truth({"pairs_without_nvlink": ANY}, facts(link(0, 1, nvlink=LOST))) is Truth.UNKNOWN
    both = facts(link(0, 1, nvlink=LOST), link(0, 2, nvlink=False), link(1, 2), count=3)
    assert truth({"pairs_without_nvlink": ANY}, both) is Truth.YES


def test_pairs_are_named_as_nvidia_smi_numbers_them_with_where_they_meet():
    of = facts(link(0, 1, nvlink=False), link(0, 2), link(1, 2, nvlink=False, pcie=LOST), count=3)
    assert fill("{pairs_without_nvlink}", View(of)) == "0-1 (SYS), 1-2"


def test_a_pair_of_which_cuda_sees_one_gpu_only_says_nothing():
    gpus = make.gpu_facts(make.gpu(), make.gpu(index=1, visible=False), links=(link(0, 1, nvlink=False, read="x"),))
    assert truth({"pairs_without_nvlink": ANY}, make.facts(gpus=gpus)) is Truth.NO
    assert truth({"peers_refused": ANY}, make.facts(gpus=gpus)) is Truth.NO


def test_refusal_to_write_counts_as_refusal_to_read_does():
    assert fill("{peers_refused}", View(facts(link(0, 1, write="not supported")))) == "0-1 (not supported)"
    assert truth({"peers_refused": ANY}, facts(link(0, 1))) is Truth.NO


@pytest.mark.parametrize(
    ("kind", "said"), [("DMA", Truth.YES), ("DMA-FQ", Truth.YES), ("identity", Truth.NO), ("none", Truth.NO)]
)
def test_only_an_iommu_that_translates_counts(kind, said):
    assert truth({"iommu_translates": ANY}, facts(iommu=kind)) is said


def test_nvlinks_are_compared_among_gpus_of_one_name():
    of = make.facts(
        gpus=make.gpu_facts(
            make.gpu(nvlinks=(True, True)),
            make.gpu(index=1, nvlinks=(True, False)),
            make.gpu(index=2, name="A", nvlinks=()),
        )
    )
    assert fill("{fewer_nvlinks}", View(of)) == "GPU 1 (1 of 2 up)"
