"""Processes that a template forks which root started as another user: they are that user's, and are ended."""

from __future__ import annotations

import acting_user
import pytest
import test_template
from msgspec.structs import replace

from fi_doctor.model import Requires
from fi_doctor.probing import catalog

LACK = acting_user.lack()
pytestmark = pytest.mark.skipif(bool(LACK), reason=LACK or "-")
PROBE = """'Who?'
import os, subprocess
PROBE = {"id": "fake.who", "feature": "fake.who", "gpus": 0, "timeout_s": 20, "checks": "nothing"}
DEAF = 'trap "" TERM INT HUP; sleep 300'
def run():
    left = [subprocess.Popen(["/bin/sh", "-c", DEAF], start_new_session=True, env=env).pid for env in ({}, None)]
    rights = [line for line in open("/proc/self/status") if line.startswith("CapEff") or line.startswith("CapPrm")]
    return {"ids": repr((os.getresuid(), os.getresgid(), os.getgroups())), "left": repr(left), "rights": repr(rights)}
"""


def test_a_forked_process_is_that_users_and_leaves_nobody(children):
    with acting_user.open_folder() as folder:
        path = folder / "fake_who.py"
        path.write_text(PROBE)
        spec = catalog.parse(PROBE, str(path), "fi-doctor")
        spec = replace(spec, requires=Requires(symbols=("flashinfer.anything",)))
        facts = test_template.FACTS
        facts = replace(facts, interpreter=replace(facts.interpreter, executable=acting_user.python()))
        environ = test_template.environ_of(**acting_user.environ(TMPDIR=str(folder)))
        [first, second] = test_template.outcomes_of([test_template.tried(spec)] * 2, facts=facts, environ=environ)
    uid, gid, group = acting_user.UID, acting_user.GID, acting_user.GROUP
    for outcome in (first, second):
        told = outcome.cells[0].measurements
        assert outcome.started == "forked"
        assert told["ids"] == repr(((uid,) * 3, (gid,) * 3, [group]))
        assert told["rights"].count("0000000000000000") == 2
    assert children() == []
