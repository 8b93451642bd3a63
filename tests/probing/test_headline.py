"""What is begun first when not everything fits."""

from msgspec.structs import replace
from test_plan import SPEC

from fi_doctor.model import Depth, Missing, PlannedProbe, Requires
from fi_doctor.probing import board, headline


def planned(feature, *variants):
    return PlannedProbe(
        spec=replace(SPEC, id=feature, feature=feature, variants={name: Requires() for name in variants}),
        sm=Missing(reason="no GPU"),
        gpu_uuids=(),
        depth=Depth.RUN,
        variants=variants or ("",),
        skipped_variants={},
        skip="",
    )


def in_order(members, users):
    ranks = headline.ranks(members, users)
    return sorted(ranks, key=ranks.__getitem__)


def test_modules_of_headline_features_come_first_and_in_their_order():
    names = ("norm.rmsnorm", "comm.allreduce_fusion", "attention.prefill", "moe.fp8_block")
    users = {feature: [(feature, "")] for feature in names}
    assert in_order([planned(feature) for feature in names], users) == list(reversed(names))


def test_what_decides_some_row_comes_before_what_the_later_variants_need():
    members = [planned("moe.fp8_block", "a", "b", "c", "d"), planned("norm.rmsnorm", "x", "y")]
    users = {
        "of nobody": [],
        "last": [("norm.rmsnorm", "y")],
        "late": [("moe.fp8_block", "c")],
        "early": [("norm.rmsnorm", "x")],
        "shared": [("moe.fp8_block", "d"), ("moe.fp8_block", "b")],
    }
    assert in_order(members, users) == ["shared", "early", "late", "last", "of nobody"]


class Known:
    library, detail, objects = "", "", 0

    def __init__(self, state, *users, part_of=""):
        self.state, self.users, self.part_of = state, users, part_of


def board_of(**modules):
    made = board.Board()
    made.tell(None, modules)
    return made


def test_a_probe_is_ready_when_all_its_modules_are_there_or_too_late():
    probe = planned("x", "a", "b")
    a, b = ("x", "a"), ("x", "b")
    assert not board.Board().is_ready(probe)
    assert not board_of(other=Known("built", ("y", "a"))).is_ready(probe)
    assert not board_of(one=Known("built", a), two=Known("", b)).is_ready(probe)
    assert not board_of(one=Known("built", a), two=Known("failed", b)).is_ready(probe)
    assert board_of(one=Known("built", a, b), two=Known("not begun", b)).is_ready(probe)
    assert board_of(one=Known("up to date", a)).is_ready(probe)


def test_only_what_was_not_too_late_is_still_compiled():
    probe = planned("x", "a", "b")
    late = board_of(one=Known("not begun", ("x", "a")), two=Known("prebuilt", ("x", "b")))
    assert (list(late.left_out(probe)), late.compiles(probe)) == (["a"], False)
    failed = board_of(one=Known("failed", ("x", "a")), two=Known("built", ("x", "b")))
    assert (list(failed.left_out(probe)), failed.compiles(probe)) == ([], True)


def test_nobody_compiles_a_module_that_a_part_stands_for():
    probe = planned("x", "a", "b")
    a, b = ("x", "a"), ("x", "b")
    whole = Known("whole", b)
    there = board_of(moe=whole, part=Known("built", a, part_of="moe"))
    assert there.is_ready(probe)
    assert (list(there.left_out(probe)), there.compiles(probe)) == (["b"], False)
    assert there.wholes(probe) == {"moe": whole.objects}
    assert there.source(probe, "a", otherwise="", loaded=True) == "subset"
    for state in ("failed", "left", "not begun"):
        gone = board_of(moe=whole, part=Known(state, a, part_of="moe"))
        assert (list(gone.left_out(probe)), gone.compiles(probe)) == (["a", "b"], False)
    assert not board_of(moe=whole, part=Known("", a, part_of="moe")).is_ready(probe)


def test_the_variants_that_decide_a_row_are_built_first():
    probe = planned("x", "a", "b", "c")
    users = {"one": [("x", "a")], "two": [("x", "b")], "three": [("x", "c")]}
    assert sorted(users, key=headline.ranks([probe], users).get) == ["one", "two", "three"]
    ranks = headline.ranks([replace(probe, deciding=("c",))], users)
    assert ranks["three"] < ranks["one"] == ranks["two"]
