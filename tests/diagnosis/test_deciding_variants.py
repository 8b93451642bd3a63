from __future__ import annotations

import factory as make
import pytest
from msgspec.structs import replace

from fi_doctor import knowledge
from fi_doctor.diagnosis import matrix
from fi_doctor.model import Ending, Requires, Stage, VllmUse

USES = (
    VllmUse(vllm=">=0.11,<0.20", use="fa2", variants=("fa2",)),
    VllmUse(vllm=">=0.20", use="fa3", variants=("fa3",)),
)
KB = knowledge.load()
KB = replace(KB, features=(replace(KB.features[2], vllm=USES),))
CELLS = (make.cell(variant="fa2"), make.cell(Ending.SIGNALLED, Stage.BUILT, "fa3", detail="SIGSEGV"))


@pytest.mark.parametrize(
    ("vllm", "verdict"),
    [("0.14.1", "works"), ("0.33.0", "broken"), (None, "broken")],
    ids=["calls-fa2", "calls-fa3", "none-installed"],
)
def test_the_variant_that_the_installed_vllm_calls_decides_the_row(vllm, verdict):
    facts = make.facts(packages={"vllm": vllm} if vllm else None)
    plan = make.planned(spec=make.spec(variants={"fa2": Requires(), "fa3": Requires()}))
    [row] = matrix.judge(KB, facts, (plan,), (make.outcome(cells=CELLS),), ())
    assert row.verdict.value == verdict
    assert len(row.cells) == 2


@pytest.mark.parametrize(
    ("vllm", "names"), [("0.14.1", ("fa2",)), ("0.33.0", ("fa3",)), (None, ())], ids=["fa2", "fa3", "none-installed"]
)
def test_the_plan_names_the_variants_that_decide(vllm, names):
    facts = make.facts(packages={"vllm": vllm} if vllm else None)
    plan = make.planned(spec=make.spec(variants={"fa2": Requires(), "fa3": Requires()}), variants=("fa2", "fa3"))
    [probe] = matrix.with_deciding(KB, facts, (plan,))
    assert probe.deciding == names
