"""Questions to compilers and other tools, which change nothing: each is asked once and has a few seconds.

Who has several of them asks side by side. What does not answer in time is told in the words of UNANSWERED.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence

from fi_doctor import sandbox
from fi_doctor.model.phrases import UNANSWERED

TIMEOUT_S = 5.0


def ask(
    words: Sequence[str], *question: str, environ: Mapping[str, str], max_output: int = 64 * 1024
) -> sandbox.Result:
    """What the tool that these words start says to a question."""
    return sandbox.run([*words, *question], timeout_s=TIMEOUT_S, env=environ, max_output=max_output)


def silence(words: Sequence[str], result: sandbox.Result, question: str = "") -> str:
    """That the tool did not answer, as a sentence; "" when it did, or failed. question: a short form of it."""
    if not result.timed_out:
        return ""
    asked = question or shlex.join(result.argv[len(words) :])
    return f"{shlex.join(words)} {UNANSWERED} {asked} within {TIMEOUT_S:g} s"
