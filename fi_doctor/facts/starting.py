"""Starts the installed vLLM, in its own interpreter and on its GPU, on a tiny model, and reads what it chose.

inside/starting.py does it. It takes a minute or more for each model, and is done only where it is asked for.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from fi_doctor import acting, sandbox
from fi_doctor.facts.choices import is_flashinfer
from fi_doctor.facts.start_log import read_log
from fi_doctor.model import Data, Evidence, Missing
from fi_doctor.model.choices import Choice, Served

TIMEOUT_S = 900.0  # FlashInfer may compile what the model runs through
_SCRIPT = Path(__file__).resolve().parent.parent / "inside" / "starting.py"
_LOG_BYTES = 1 << 20
# No multicast objects (NVLink SHARP): the child may be killed at any moment, and these are a resource of the host.
_NO_MULTICAST = {
    "NCCL_NVLS_ENABLE": "0",
    "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1",
    "NVSHMEM_DISABLE_NVLS": "1",
    "VLLM_ALLREDUCE_USE_SYMM_MEM": "0",
}


class Started(Data, frozen=True):
    """What a tiny model was seen to run on."""

    vllm: str
    choices: tuple[Choice, ...]
    fault: str = ""  # what ended it before it had generated tokens


class _Held(Data, frozen=True):
    operator: Served
    chosen: str
    layers: str = "all"


class _Answer(Data, frozen=True):
    phase: str = ""
    vllm: str = ""
    choices: tuple[_Held, ...] = ()
    error: str = ""


def start(
    python: Sequence[str],
    model: Mapping[str, Any],
    engine: Mapping[str, Any],
    *,
    environ: Mapping[str, str],
    fresh: bool,
) -> Started | Missing:
    """What vLLM takes for this model; Missing when it did not come so far, with vLLM's own reason.

    model: what config.json has. engine: keyword arguments of vLLM's LLM. fresh: FlashInfer's cache is neither
    read nor written.
    """
    request = {"config": model, "engine": engine, "fresh": fresh}
    files = {"request.json": json.dumps(request).encode()}
    with acting.folder("fi-doctor-start-", acting.account_of(environ), files=files) as (_, folder):
        asked, answered = folder / "request.json", folder / "answer.json"
        result = sandbox.run(
            [*python, "-u", str(_SCRIPT), str(asked), str(answered)],
            timeout_s=TIMEOUT_S,
            env={**environ, **_NO_MULTICAST, "PYTHONSAFEPATH": "1"},
            merge=True,
            max_output=_LOG_BYTES,
        )
        try:
            data = acting.read_answer(answered)
        except OSError:
            data = b""
    return read(data, result.stdout.decode(errors="replace"), _ending(result))


def read(data: bytes, log: str, ending: str) -> Started | Missing:
    """An answer of inside/starting.py beside what vLLM logged. ending: how the process ended, "" for as it should."""
    try:
        answer = msgspec.json.decode(data, type=_Answer) if data else _Answer()
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return Missing(reason=f"what was read of the tiny model is no answer: {error}")
    evidence = Evidence.RAN if answer.phase == "generated" else Evidence.BUILT
    fault = answer.error or ending
    held = [(one.operator, one.chosen, one.layers, "its layers") for one in answer.choices if one.chosen]
    known = {operator for operator, *_ in held}
    said = read_log(log)
    held += [(one, name, "all", "its log") for one, names in said.items() if one not in known for name in names]
    if not held:
        where = f" while {answer.phase}" if answer.phase and answer.phase != "generated" else ""
        return Missing(reason=f"vLLM did not start on a tiny model{where}: {fault or 'it said nothing of its choices'}")
    return Started(vllm=answer.vllm, choices=tuple(dict.fromkeys(_choice(*one, evidence) for one in held)), fault=fault)


def _choice(operator: Served, chosen: str, layers: str, source: str, evidence: Evidence) -> Choice:
    return Choice(
        operator=operator,
        layers=layers,
        chosen=chosen,
        is_flashinfer=is_flashinfer(chosen),
        how=f"vLLM was started here on a tiny model: read from {source}",
        evidence=evidence,
    )


def _ending(result: sandbox.Result) -> str:
    if result.timed_out:
        return f"it did not end within {TIMEOUT_S:g} s"
    if result.error:
        return result.error
    return f"its process ended by {result.signal or f'exit code {result.returncode}'}" if result.returncode else ""
