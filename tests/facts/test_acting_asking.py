"""What is asked of vLLM and of compilers as another user: requests and answers lie in folders of that user."""

from __future__ import annotations

import acting_user
import pytest

from fi_doctor.facts import choices, nvcc, starting

LACK = acting_user.lack()
pytestmark = pytest.mark.skipif(bool(LACK), reason=LACK or "-")
GPU = choices.AskedGpu(sm=(9, 0), name="NVIDIA H200", memory_gib=141.0, multiprocessors=132)
NVCC = """#!/bin/sh
[ -O "$TMPDIR" ] && touch "$TMPDIR/left" && echo "#$ gcc -E -I/of-user-$(id -u) /dev/null"
"""


def test_the_selectors_of_vllm_are_asked():
    found = choices.ask([acting_user.python(), "-I"], {}, {}, GPU, environ=acting_user.environ())
    # There is none, as its answer says.
    assert found.reason == "vLLM could not be asked: ModuleNotFoundError: No module named 'torch'"


def test_vllm_is_started():
    found = starting.start([acting_user.python(), "-I"], {}, {}, environ=acting_user.environ(), fresh=True)
    assert (
        found.reason
        == "vLLM did not start on a tiny model while importing: ModuleNotFoundError: No module named 'vllm'"
    )


def test_what_a_compiler_leaves_lies_in_a_folder_of_that_user():
    with acting_user.open_folder() as folder:
        tool = folder / "nvcc"
        tool.write_text(NVCC)
        tool.chmod(0o755)
        found = nvcc.read_folders([str(tool)], acting_user.environ())
    assert found == nvcc.Folders((f"/of-user-{acting_user.UID}",), (), ())
