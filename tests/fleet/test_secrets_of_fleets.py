"""A secret that stands in a report, in its name or in the folder of a fleet reaches no format."""

import json

import pytest
import simulated
from seeded_secrets import ENVIRON, INDEX, KEY, LOG, PASSWORD, SEEDS, TOKEN, leaked
from test_grouping import nodes

from fi_doctor.errors import DataError
from fi_doctor.fleet import rendering
from fi_doctor.fleet.reading import NodeReport


def seeded(facts):
    """Secrets wherever a report of another release, or of another tool, may have left them."""
    facts["environment"].update(ENVIRON, CUDA_HOME=f"/opt/{TOKEN}", NOTE=LOG)
    facts["system"].update(hostname=f"node {TOKEN}", kernel=LOG)
    facts["interpreter"]["executable"] = f"/opt/{TOKEN}/bin/python"
    facts["packages"]["torch"].update(version=f"2.11.0 {KEY}", location=f"/opt/{TOKEN}", requires=[f"x @ {INDEX}"])
    facts["site"]["installed"][f"x @ {INDEX}"] = LOG
    facts["toolkit"]["jit"] = {"kind": "missing", "reason": LOG}
    facts["flashinfer"]["altered"] = {f"norm/{TOKEN}.py": LOG}


@pytest.fixture(params=[True, False], ids=["as-recorded", "judged-today"])
def fleet(merged, request):
    one, two, three, odd = nodes(None, None, simulated.libc, seeded)
    plain = json.loads(odd.found)
    plain["created"] = plain["doctor"]["version"] = f"1 {LOG}"
    plain["features"][0]["why"] = LOG
    data, name = json.dumps(plain).encode(), f"node {TOKEN} --api-key {KEY}"
    again = plain | {"created": ""}
    reports = [
        *(one, two, three, NodeReport(name, data, f"{INDEX}/{name}.json")),
        NodeReport(f"{name} again", json.dumps(again).encode(), f"{INDEX}/{name}.again.json"),
        NodeReport(name, DataError(f"cannot read {INDEX}", why=LOG, todo=LOG), INDEX),
        NodeReport(f"cut {TOKEN}", data[:1000], INDEX),
    ]
    driver = NodeReport(f"driver {TOKEN}", data)
    return merged(reports, driver=driver, notes=(LOG,), as_recorded=request.param)


@pytest.mark.parametrize("form", rendering.FORMATS)
def test_no_format_tells_one(fleet, form):
    text = rendering.render(fleet, form)
    assert leaked(text) == []
    assert "hidden" in text or form == "prometheus"


def test_variables_that_are_named_as_secrets_are_compared_and_not_told(merged):
    def password(facts):
        facts["environment"]["REGISTRY_PASSWORD"] = PASSWORD

    found = merged(nodes(None, None, password)).document
    (group,) = (one for one in found.groups if one.is_odd)
    assert group.said == ("node-2: REGISTRY_PASSWORD=<hidden>, not set on the others",)


def test_they_would_be_seen_where_nothing_hides_them(merged):
    def plain(facts):
        facts["environment"]["NOTE"] = " ".join(seed[::-1] for seed in SEEDS)

    text = rendering.render(merged(nodes(None, None, plain)), "json")
    assert [seed for seed in SEEDS if seed[::-1] in text]
