"""Asks the installed vLLM, in its own interpreter, which kernels it would choose for a model on a GPU.

inside/selecting.py does the asking: it imports vLLM, which takes 10 to 30 s, and is never part of a static check.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from fi_doctor import acting, sandbox
from fi_doctor.model import Data, Evidence, Missing
from fi_doctor.model.choices import Choice, Rejected, Served

TIMEOUT_S = 300.0
_SCRIPT = Path(__file__).resolve().parent.parent / "inside" / "selecting.py"
_FLASHINFER = re.compile(r"flashinfer|(^|_)FI_", re.IGNORECASE)


class AskedGpu(Data, frozen=True):
    """The GPU that is asked about; where it is the one that is here, nothing of it is replaced."""

    sm: tuple[int, int]
    name: str
    memory_gib: float
    multiprocessors: int
    count: int = 1
    cuda: str = ""  # "": what the installed torch was built for


class Asked(Data, frozen=True):
    """What vLLM's own selectors answered."""

    vllm: str
    choices: tuple[Choice, ...]
    unknown: tuple[Rejected, ...] = ()  # operators that could not be asked, and why
    replaced: tuple[str, ...] = ()  # what stood in for a device, a network or a compiled module


class _Answered(Data, frozen=True):
    operator: Served
    chosen: str
    layers: str = "all"
    rejected: tuple[Rejected, ...] = ()
    how: str = ""
    error: str = ""


class _Cell(Data, frozen=True):
    choices: tuple[_Answered, ...] = ()
    unknown: tuple[dict[str, str], ...] = ()
    replaced: tuple[str, ...] = ()
    error: str = ""


class _Answer(Data, frozen=True):
    vllm: str = ""
    replaced: tuple[str, ...] = ()
    cells: tuple[_Cell, ...] = ()
    error: str = ""


def ask(  # noqa: PLR0913 - a model, how it is served, and where
    python: Sequence[str],
    model: Mapping[str, Any],
    engine: Mapping[str, Any],
    gpu: AskedGpu,
    *,
    environ: Mapping[str, str],
    reachable: bool = False,
) -> Asked | Missing:
    """What the vLLM of that interpreter chooses; Missing when it cannot be asked.

    model: what config.json has.  engine: keyword arguments of vLLM's EngineArgs (tensor_parallel_size, ...), and
    `variables`, a mapping of the server's environment.  reachable: whether NVIDIA's server of kernels is; vLLM asks it
    for TRTLLM attention, and here nobody does.
    """
    keywords = {key: value for key, value in engine.items() if key != "variables"}
    request = {
        "gpu": msgspec.to_builtins(gpu),
        "reachable": reachable,
        "variables": dict(engine.get("variables") or {}),
        "cells": [{"id": "asked", "config": model, "engine": keywords}],
    }
    files = {"request.json": json.dumps(request).encode()}
    with acting.folder("fi-doctor-choices-", acting.account_of(environ), files=files) as (_, folder):
        asked, answered = folder / "request.json", folder / "answer.json"
        result = sandbox.run([*python, str(_SCRIPT), str(asked), str(answered)], timeout_s=TIMEOUT_S, env=environ)
        try:
            data = acting.read_answer(answered)
        except OSError:
            return Missing(reason=_silence(result))
    return read(data)


def read(data: bytes) -> Asked | Missing:
    """An answer of inside/selecting.py with one cell."""
    try:
        answer = msgspec.json.decode(data, type=_Answer)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return Missing(reason=f"what vLLM's selectors answered cannot be read: {error}")
    if answer.error:
        return Missing(reason=f"vLLM could not be asked: {answer.error}")
    cell = answer.cells[0] if answer.cells else _Cell(error="no answer for the model")
    if cell.error:
        return Missing(reason=f"vLLM {answer.vllm} does not take this configuration: {cell.error}")
    return Asked(
        vllm=answer.vllm,
        choices=tuple(_choice(answered) for answered in cell.choices if not answered.error),
        unknown=(
            *(Rejected(name=part.get("operator", ""), why=part.get("why", "")) for part in cell.unknown),
            *(Rejected(name=answered.operator, why=answered.error) for answered in cell.choices if answered.error),
        ),
        replaced=(*answer.replaced, *cell.replaced),
    )


def is_flashinfer(chosen: str) -> bool | None:
    """Whether it is FlashInfer, by vLLM's own name of it; None where there is none."""
    return bool(_FLASHINFER.search(chosen)) if chosen else None


def _choice(answered: _Answered) -> Choice:
    return Choice(
        operator=answered.operator,
        layers=answered.layers,
        chosen=answered.chosen,
        is_flashinfer=is_flashinfer(answered.chosen),
        rejected=answered.rejected,
        how=answered.how,
        evidence=Evidence.PREDICTED,
    )


def _silence(result: sandbox.Result) -> str:
    if result.timed_out:
        return f"vLLM's selectors did not answer within {TIMEOUT_S:g} s"
    last = result.stderr.decode("utf-8", "replace").strip().splitlines()[-1:]
    return f"vLLM's selectors did not answer: {result.error or ' '.join(last) or f'exit code {result.returncode}'}"
