"""How much of a complete backend is there: the wire format of `fi-doctor features --format json`."""

from __future__ import annotations

from fi_doctor.model.base import Data, Missing
from fi_doctor.model.calls import Calls
from fi_doctor.model.report import Doctor
from fi_doctor.model.words import Evidence, Verdict

COVERAGE_SCHEMA = "fi-doctor.coverage/1.0"
OTHERS = "Other rows of the matrix"  # the group of rows that no operator of a complete backend names


class Here(Data, frozen=True):
    """Whether a row works on this machine."""

    row: str
    sm: int | Missing
    verdict: Verdict
    evidence: Evidence
    why: str


class Covered(Data, frozen=True):
    """One operator."""

    id: str
    group: str
    title: str
    flashinfer: dict[str, str]  # names that FlashInfer has -> where, "norm/__init__.py:41"; empty: none
    flashinfer_why: str  # where there is none, or it is not known: what was looked for
    vllm: tuple[str, ...]  # where the installed vLLM calls one of them, "v1/sample/ops/topk_topp_sampler.py:653"
    vllm_why: str  # where there is no such place, or it is not known
    here: tuple[Here, ...]
    missing: tuple[str, ...]  # "flashinfer", "vllm", "here": where it is known to be missing
    unknown: tuple[str, ...]  # the same three: where it could not be told
    instead: str  # what serves where FlashInfer does not


class Coverage(Data, frozen=True):
    """Every operator that a complete FlashInfer backend of vLLM needs."""

    schema: str
    doctor: Doctor
    created: str
    flashinfer: str  # "flashinfer-python 0.7.2.post1", or why it is not known
    vllm: str
    known: str  # how it is known whether something works here: "a static look", "a report of ..."
    operators: tuple[Covered, ...]
    calls: Calls | Missing
