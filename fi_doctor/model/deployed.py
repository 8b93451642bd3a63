"""What becomes of a model that is served on a machine: which kernels it runs through, and whether they work."""

from __future__ import annotations

from typing import Any

from fi_doctor.model.base import Closed, Data, Missing
from fi_doctor.model.choices import Choice
from fi_doctor.model.deployments import Deployment, ServedModel


class Wanted(Data, frozen=True):
    """What somebody wants to serve."""

    model: ServedModel
    deployment: Deployment
    config: dict[str, Any]  # what its config.json holds, for whoever asks vLLM
    variables: tuple[str, ...] = ()  # that files set for the server


class Effect(Closed):
    """What a choice of vLLM comes to here. Declared so that an unknown word reads as unknown."""

    UNKNOWN = "unknown"
    FAILS = "fails"  # the server does not start, or ends
    WRONG_RESULT = "wrong-result"
    OTHER = "other"  # something else than FlashInfer serves
    FLASHINFER = "flashinfer"  # FlashInfer serves, and is known to work here


class Part(Data, frozen=True):
    """One operator of the model."""

    choice: Choice
    effect: Effect
    why: str  # one sentence
    rows: tuple[str, ...] = ()  # of the matrix, that it rests on


class Deployed(Data, frozen=True):
    """The answer for a deployment."""

    model: ServedModel
    deployment: Deployment
    sm: int | Missing
    vllm: str | Missing  # its version
    effect: Effect
    why: str  # one sentence, which answers
    parts: tuple[Part, ...] = ()
    known_by: str = ""  # how the choices are known
    stopped: tuple[str, ...] = ()  # how vLLM ended when it was started on tiny models, where it served nothing
    notes: tuple[str, ...] = ()  # what was not taken into account, and why
