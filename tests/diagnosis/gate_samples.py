"""Rows, requirements and allowances, and what the gate makes of them."""

from __future__ import annotations

import factory as make
from msgspec.structs import replace

from fi_doctor.diagnosis.gate import decide
from fi_doctor.model import (
    Allowance,
    Depth,
    Evidence,
    Finding,
    Policy,
    Request,
    Requirement,
    Scope,
    Severity,
    Verdict,
)

NORM, KV = "norm.rmsnorm", "kv.append_paged"


def need(feature=NORM, *, verdict="works", evidence="verified", scope="full"):
    return Requirement(
        feature=feature,
        verdict=Verdict(verdict),
        evidence=Evidence(evidence),
        scope=Scope(scope),
        source="fi-doctor.toml: require",
    )


def allow(*, feature="", finding="", expires="2027-01-31", verdicts=()):
    return Allowance(
        finding=finding,
        feature=feature,
        reason="a fix comes",
        expires=expires,
        source="fi-doctor.toml: allow",
        verdicts=verdicts,
    )


def finding(name="nvcc-too-old", severity=Severity.ERROR):
    return Finding(id=name, cause="x", severity=severity, title="t", why="w", fix=(), features=(), source="s")


def gate(rows, policy=None, *, features=(), found=(), facts=None, required=()):
    policy = replace(policy or Policy(), file="/repo/fi-doctor.toml", day="2026-12-01")
    request = Request(depth=Depth.RUN, features=features, required=required, policy=policy)
    return decide(request, tuple(rows), tuple(found), facts or make.facts())


def row(verdict="works", evidence="verified", scope="full", feature=NORM, **fields):
    return replace(make.row(feature, Verdict(verdict), Evidence(evidence), **fields), scope=Scope(scope))
