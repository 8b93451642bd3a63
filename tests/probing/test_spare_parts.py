"""Parts that stand for modules only where there is no time for the whole: compiled by a real c++."""

import os
import shutil
import sys

import pytest
from msgspec.structs import replace
from test_prebuild import ASKED, Machine

from fi_doctor.diagnosis import cells
from fi_doctor.model import Evidence, Scope, Verdict
from fi_doctor.probing import catalog
from fi_doctor.probing.plan import plan
from fi_doctor.probing.told import Told, without_spares

pytestmark = pytest.mark.skipif(
    not all(map(shutil.which, ("ninja", "c++", "nm"))), reason="no ninja, c++ or nm on PATH"
)

MODULE = "batch_prefill_fake_sm90"
LONG = replace(ASKED, budget_s=7200)  # the estimates are those of a real module: 3 min for the whole with 4 jobs
SHORT = replace(ASKED, budget_s=150)
PROBE = '''"""Does it give the mask that was asked for?"""

import ctypes

PROBE = {{
    "id": "fake.{name}", "feature": "fake.{name}", "module": "batch_prefill_fake", "gpus": 0,
    "variants": {{"causal": {{}}, "custom": {{}}}}, "subset": {{"units": "{units}", "if_short": True}},
}}


def build(variant):
    from flashinfer.ops import get_module

    get_module("batch_prefill_fake_sm90")


def run(variant):
    from flashinfer.ops import get_module

    library = ctypes.CDLL(str(get_module("batch_prefill_fake_sm90").__self__.path))
    mask = 2 if variant == "custom" else 1
    assert library.run(mask, 0) == mask
    return {{"mask": mask, "elements": 1}}


if __name__ == "__main__":
    import sys

    for name in sys.argv[1:] or PROBE["variants"]:
        print(name, run(name))
'''
DISPATCHER = """
namespace flashinfer {
template <int MASK> int Paged();
template <int MASK> int Ragged();
using Function = int (*)();
}
extern "C" int run(int mask, int ragged) {
  using namespace flashinfer;
  Function all[2][4] = {{Paged<0>, Paged<1>, Paged<2>, Paged<3>}, {Ragged<0>, Ragged<1>, Ragged<2>, Ragged<3>}};
  return all[ragged][mask]();
}
"""
KERNEL = (
    "namespace flashinfer {{ template <int MASK> int {kind}() {{ return MASK; }} template int {kind}<{mask}>(); }}\n"
)


class MaskMachine(Machine):
    """One with a toy of attention for SM90, whose files have the names of FlashInfer's."""

    def __init__(self, folder, log):
        super().__init__(folder, log)
        self.facts = replace(self.facts, system=replace(self.facts.system, cpus=4))  # estimates go by these
        self.environ["FAKE_COMPILER"] = "c++"
        self.place = self.sources / MODULE
        self.place.mkdir()
        (self.place / "batch_prefill_sm90.cu").write_text(DISPATCHER)
        for kind in ("paged", "ragged"):
            for mask in range(4):
                text = KERNEL.format(kind=kind.capitalize(), mask=mask)
                (self.place / f"batch_prefill_{kind}_sm90_kernel_mask_{mask}.cu").write_text(text)

    def probe_of(self, name, units, *, if_short=True):
        path = self.folder / f"fake_{name}.py"
        text = PROBE.format(name=name, units=units)
        path.write_text(text if if_short else text.replace(', "if_short": True', ""))
        self.specs.append(catalog.parse(path.read_text(), str(path), "fi-doctor"))

    def judged(self, request):
        """Outcomes, builds, and the cells of each probe by their variants."""
        planned = plan(self.specs, self.facts, request)
        outcomes, builds = self.check(request)
        found = {
            one.spec.id.removeprefix("fake."): {
                cell.variant: cell
                for cell in cells.cells_of(one, outcomes[one.spec.id.removeprefix("fake.")], self.facts)
            }
            for one in planned
        }
        return outcomes, builds, found


@pytest.fixture(params=["own", "shared"])
def machine(request, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "kept"))
    (tmp_path / "machine").mkdir()
    return MaskMachine(tmp_path / "machine", request.param)


def test_a_variant_can_do_with_less_than_the_others(machine):
    machine.probe_of("prefill", 'paged", "units_of": {"causal": "paged_causal"}, "without": "')
    _, builds, found = machine.judged(SHORT)
    assert sorted(builds.modules) == [MODULE, f"{MODULE}.paged", f"{MODULE}.paged_causal"]
    assert (found["prefill"]["causal"].verdict, found["prefill"]["causal"].scope) == (Verdict.WORKS, Scope.SUBSET)
    assert found["prefill"]["custom"].verdict is Verdict.BROKEN  # its mask is in neither


def test_the_whole_is_compiled_where_there_is_time(machine):
    machine.probe_of("prefill", "no_mask_or_causal")
    outcomes, builds, found = machine.judged(LONG)
    assert builds.modules == {MODULE: "built"}
    assert {(cell.verdict, cell.scope) for cell in found["prefill"].values()} == {(Verdict.WORKS, Scope.FULL)}
    assert outcomes["prefill"].whole_module == ""


def test_a_part_is_compiled_where_there_is_not_and_named_so(machine, tmp_path):
    machine.probe_of("prefill", "no_mask_or_causal")
    outcomes, builds, found = machine.judged(SHORT)
    assert builds.modules == {
        MODULE: "not compiled: 9 objects; parts stand for it",
        f"{MODULE}.no_mask_or_causal": "built",
    }
    one = found["prefill"]["causal"]
    assert (one.verdict, one.evidence, one.scope) == (Verdict.WORKS, Evidence.VERIFIED, Scope.SUBSET)
    assert outcomes["prefill"].whole_module.startswith(f"{MODULE} is not compiled: 9 objects, estimated ")
    assert not list(machine.ops.rglob("*.so"))
    assert len(list((tmp_path / "kept").rglob("*kernel_mask_?.o"))) == 4


def test_a_probe_that_needs_a_part_only_gets_no_more_though_there_is_time(machine):
    machine.probe_of("window", "paged", if_short=False)
    _, builds, found = machine.judged(LONG)
    whole = "not compiled: 9 objects; parts stand for it"
    assert builds.modules == {MODULE: whole, f"{MODULE}.paged": "built"}
    assert (found["window"]["causal"].verdict, found["window"]["causal"].scope) == (Verdict.WORKS, Scope.SUBSET)
    assert found["window"]["custom"].verdict is Verdict.BROKEN  # its mask is left out


def test_a_mask_that_is_left_out_says_its_name_when_it_is_called(machine):
    machine.probe_of("prefill", "no_mask_or_causal")
    _, _, found = machine.judged(SHORT)
    assert found["prefill"]["custom"].verdict is Verdict.BROKEN
    assert "not compiled in this part of the module: int flashinfer::Paged<2>()" in found["prefill"]["custom"].why


def test_the_shell_line_needs_nothing_of_ours_where_a_part_was_run(machine, tmp_path):
    machine.probe_of("prefill", "no_mask_or_causal")
    outcomes, _, found = machine.judged(SHORT)
    assert found["prefill"]["custom"].scope is Scope.SUBSET
    line = outcomes["prefill"].reproduce
    assert line.endswith(f"{sys.executable} {machine.folder / 'fake_prefill.py'} custom")
    assert str(tmp_path / "kept") not in line
    assert "harness" not in line


def test_probes_that_want_the_same_part_share_it(machine):
    machine.probe_of("prefill", "no_mask_or_causal")
    machine.probe_of("decode", "no_mask_or_causal")
    machine.probe_of("sinks", "paged_causal")
    _, builds, found = machine.judged(SHORT)
    assert sorted(builds.modules) == [MODULE, f"{MODULE}.no_mask_or_causal", f"{MODULE}.paged_causal"]
    assert {found[name]["causal"].scope for name in ("prefill", "decode", "sinks")} == {Scope.SUBSET}


def test_a_part_that_was_kept_is_taken_first(machine):
    machine.probe_of("prefill", "no_mask_or_causal")
    outcomes, _, _ = machine.judged(SHORT)
    assert not outcomes["prefill"].cached
    for request in (SHORT, LONG):
        outcomes, builds, found = machine.judged(request)
        assert outcomes["prefill"].cached
        assert builds.modules[f"{MODULE}.no_mask_or_causal"] == "cache"
        assert found["prefill"]["causal"].scope is Scope.SUBSET
        assert outcomes["prefill"].whole_module


@pytest.mark.parametrize("damage", ["no library", "library of nothing", "object of nothing", "one object less"])
def test_a_part_that_was_begun_is_finished_rather_than_the_whole_begun(machine, tmp_path, damage):
    machine.probe_of("prefill", "no_mask_or_causal")
    machine.judged(SHORT)
    library = next((tmp_path / "kept").rglob("*.so"))
    found = next((tmp_path / "kept").rglob("*kernel_mask_1.o"))
    if damage != "library of nothing":
        library.unlink()
    else:
        library.write_bytes(b"")
    if damage == "object of nothing":
        times = found.stat()
        found.write_bytes(b"\xb7 nothing of use")
        os.utime(found, ns=(times.st_atime_ns, times.st_mtime_ns))
    elif damage == "one object less":
        found.unlink()
    _, builds, cells_of = machine.judged(LONG)
    assert builds.modules[f"{MODULE}.no_mask_or_causal"] == "built"
    assert cells_of["prefill"]["causal"].verdict is Verdict.WORKS


def test_a_module_without_masks_is_compiled_as_a_whole(machine):
    for path in machine.place.glob("*_mask_[23].cu"):
        path.rename(path.with_name(path.name.replace("mask", "masked")))
    machine.probe_of("prefill", "no_mask_or_causal")
    _, builds, _ = machine.judged(SHORT)
    assert builds.modules == {MODULE: "built"}


def test_a_module_that_somebody_needs_whole_is_compiled_as_a_whole(machine):
    machine.probe_of("prefill", "no_mask_or_causal")
    machine.probe_of("other", "no_mask_or_causal")
    machine.specs[1] = replace(machine.specs[1], subset=None)
    _, builds, _ = machine.judged(SHORT)
    assert builds.modules == {MODULE: "built"}


def test_only_parts_that_are_needed_are_told_of():
    user = (("fake.prefill", "causal"),)
    whole, part = Told(objects=10, users=user), Told(objects=4, users=user, part_of="a", spare=True)
    kept = replace(part, objects=0, state="up to date", part_of="c", begun=True)
    there = Told(state="up to date")
    told = {"a": whole, "a.part": part, "b": there, "c": whole, "c.part": kept}
    replaced, kept = replace(whole, state="whole", users=()), replace(kept, spare=False)
    with_time = {"a": whole, "b": there, "c": replaced, "c.part": kept}
    assert without_spares(told, lambda objects: objects == {"a": 10}) == with_time
    without = {**with_time, "a": replaced, "a.part": replace(part, spare=False)}
    assert without_spares(told, lambda _: False) == without
