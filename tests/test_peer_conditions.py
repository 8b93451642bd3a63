"""What conditions say of GPUs that have to reach each other where something of it is not known."""

import factory as make
import pytest
from factory import link

from fi_doctor.conditions import Truth, View, fill, holds
from fi_doctor.conditions.peers import no_peers
from fi_doctor.diagnosis.cells import cells_of
from fi_doctor.model import Depth, Request, Requires, Verdict
from fi_doctor.probing.plan import plan

LOST = make.missing("GPU is lost")
ANY = {"matches": ""}


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


REFUSED = {"read": "chipset not supported"}


@pytest.mark.parametrize(
    ("links", "told"),
    [
        ([link(0, 1, **REFUSED), link(0, 2, **REFUSED), link(1, 2, **REFUSED)], "0-1 (chipset not supported), 0-2 "),
        ([link(0, 1, **REFUSED), link(0, 2, **REFUSED), link(1, 2)], ""),
        ([link(0, 1, **REFUSED), link(0, 2, **REFUSED), link(1, 2, read=LOST)], ""),
        ([], ""),
    ],
    ids=["none", "one", "not-known", "not-read"],
)
def test_only_where_every_pair_is_refused_there_are_no_peers(links, told):
    said = no_peers(facts(*links, count=3), 90)
    assert said.startswith(f"NVML says that these GPUs do not reach each other's memory: {told}" if told else "")
    assert bool(said) == bool(told)
    assert no_peers(facts(*links, count=3), 100) == ""


def test_a_variant_that_needs_peers_is_unsupported_without_them_and_the_others_decide():
    of = make.spec("comm.peer_transfer", gpus=2, variants={"peer_copy": Requires(), "ipc": Requires(peer_access=True)})
    machine = facts(link(0, 1, **REFUSED))
    [planned] = plan([of], machine, Request(depth=Depth.RUN))
    assert planned.variants == ("peer_copy",)
    cells = cells_of(planned, make.outcome(of.id, cells=(make.cell(variant="peer_copy"),)), machine)
    assert [cell.verdict for cell in cells] == [Verdict.WORKS, Verdict.UNSUPPORTED]
    assert cells[1].why == planned.skipped_variants["ipc"]
    [planned] = plan([of], facts(link(0, 1)), Request(depth=Depth.RUN))
    assert planned.variants == ("peer_copy", "ipc")


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
