"""Which faults of public reports --target would have foretold from the versions and the GPU that the reports state.

    python benchmarks/foreseen.py REPORTS.jsonl [--all]

A line of REPORTS is one report: `versions`, `sm`, `environment` (lines as programs print them), and the `cause` and
`family` that it was found to have. Those of FAMILIES that give a GPU and a version are judged: the target is what they
state, and FlashInfer and torch as their vLLM requires them; releases that are not known, such as nightly ones, are the
nearest that is. Nothing else of their machine is known but CUDA_HOME, where a line has it. A fault is foreseen where a
finding that is no mere information has its cause, or is of the rule that `fi-doctor explain` has for it, or where the
row that it is about (ROWS) is unsupported or foretold to fail. What is missed is printed with why. Two shares are
printed: of all of these, and of those that name a release of FlashInfer or vLLM of which --target knows anything. The
goal, 60 %, is of the second: without such a release there are no versions that a target could be given. --all: other
families too, not counted.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import re
import sys
from collections import Counter

from msgspec.structs import replace

from fi_doctor import knowledge, pipeline, targeting
from fi_doctor.cli import targeting as reading
from fi_doctor.conditions.compilers import SINCE, TOOLKITS
from fi_doctor.conditions.drivers import BRANCHES
from fi_doctor.conditions.ranges import parse_version
from fi_doctor.explaining import lines, telling
from fi_doctor.knowledge import examples, faults, pins
from fi_doctor.model import Depth, Facts, Missing, Report, Request, Severity, Verdict
from fi_doctor.probing import catalog
from fi_doctor.probing import plan as planning
from fi_doctor.reports import document

KB, SPECS = knowledge.load(), catalog.discover()
FAMILIES = {
    "package-versions": "environment",
    "arch-list-or-detection": "environment",
    "driver": "environment",
    "toolkit-too-old": "toolkit",
    "toolchain-missing-or-misfound": "toolkit",
    "kernel-not-for-this-gpu": "gate",
}
# The row that a cause is about, where it is no property of the machine.
ROWS = {"trtllm-gen-attention-arch-unsupported": "attention.trtllm_gen"}
# What no version tells of a cause: it lies in files of the machine, which the lines of a report do not list.
OF_FILES = {
    "cuda-dev-headers-missing": "which headers a toolkit has is seen where it lies",
    "host-compiler-header-missing": "which headers a host compiler has is seen where it lies",
    "cuda-home-usr-breaks-include-next": "no line says what CUDA_HOME is",
    "bundled-cccl-not-used": "it is another program's build that leaves FlashInfer's own CCCL out",
    "driver-too-old-for-toolkit": "a driver runs every toolkit of its CUDA major; what it refused is told by a log",
}
_CUDA_HOME = re.compile(r"(?:CUDA_HOME *[:=] *|-isystem +)(\S+?)(?:/include)?(?:\s|$)")
REQUEST = Request(depth=Depth.STATIC)
HEALTHY = document.read(examples.data("h200"), "an example")


def main() -> int:
    """Print each report that counts with what foretold it, and the shares; 1 where the second is below 60 %."""
    parser = argparse.ArgumentParser()
    parser.add_argument("reports", type=pathlib.Path)
    parser.add_argument("--all", action="store_true")
    asked = parser.parse_args()
    counts: Counter[tuple[str, bool]] = Counter()
    named: Counter[bool] = Counter()
    for line in asked.reports.read_text(encoding="utf-8").splitlines():
        report = json.loads(line)
        group = FAMILIES.get(report["family"], "other")
        if group == "other" and not asked.all:
            continue
        stated = read(report)
        if "sm" not in stated or len(stated) < 2:
            continue
        words, by = foresee(report, stated)
        counts[group, bool(by)] += 1
        named[bool(by)] += group != "other" and any(f"{key}=" in words for key in ("flashinfer", "vllm"))
        told = by or why_missed(report, words)
        print(f"{'foreseen' if by else 'MISSED':8} {report['id']}: {report['cause']} ({words}): {told}")
    for group in sorted({group for group, _ in counts}):
        print(f"{group}: {counts[group, True]} of {counts[group, True] + counts[group, False]} foreseen")
    right = sum(number for (group, is_seen), number in counts.items() if is_seen and group != "other")
    whole = sum(number for (group, _), number in counts.items() if group != "other")
    print(f"of all that state a GPU and any version: {right} of {whole}, {100 * right / max(whole, 1):.0f} %")
    share = named[True] / max(named.total(), 1)
    print(f"of those that state a known release of FlashInfer or vLLM: {named[True]} of {named.total()}, {share:.0%}")
    return int(share < 0.6)


def read(report: dict) -> dict[str, str]:
    """What a report states, by the words of --target: of its fields, else of its environment's lines."""
    found: dict[str, str] = {}
    for number, line in enumerate((report["environment"] or "").splitlines(), 1):
        for fact in telling.told(lines.read("environment", number, line.encode()), tuple(telling.literals())):
            key = {"nvcc": "cuda", "driver": "driver", "sm": "sm"}.get(fact.name, _KEYS.get(fact.key, ""))
            if key and fact.value[:1].isdigit():
                found.setdefault(key, fact.value)
    for name, value in report["versions"].items():
        if number := re.search(r"\d+(?:\.\d+)+\w*(?:\.\w+)*(?:\+\w+)?", str(value)):
            key = next((key for key in ("cubin", "jit-cache") if key in str(value)), name)
            found[key] = number[0]
    if report["sm"] and (sm := re.match(r"\d+", str(report["sm"]))):
        found["sm"] = sm[0]
    known = {key: value for key, value in found.items() if key in (*_KEYS.values(), "cuda", "driver", "sm")}
    return {**required(known), **known}


def required(stated: dict[str, str]) -> dict[str, str]:
    """What the vLLM that is stated requires of those that are not."""
    vllm = nearest("vllm", stated["vllm"]) if "vllm" in stated else ""
    found = {}
    for line in pins.load()["vllm"].get(vllm, ()):
        name, _, version = line.partition("==")
        if version and name.strip() in ("flashinfer-python", "torch"):
            found[_KEYS[name.strip()]] = version.strip()
    return found


def nearest(name: str, version: str) -> str:
    """The newest release that is known and not newer; "" where all are newer."""
    wanted = parse_version(version.partition("+")[0])
    older = [one for one in pins.load()[name] if wanted and (parsed := parse_version(one)) and parsed <= wanted]
    newer = [one for one in pins.load()[name] if one.startswith(version.split(".dev", maxsplit=1)[0])]
    return version if version in pins.load()[name] else (newer or older[-1:] or [""])[0]


def foresee(report: dict, stated: dict[str, str]) -> tuple[str, str]:
    """The target in words, and what of its report foretells the fault; "" for nothing."""
    given = {"sm": stated["sm"]}
    if branch := stated.get("driver", "").partition(".")[0]:
        given |= {"driver": stated["driver"]} if branch in BRANCHES else {}
    release = ".".join(stated.get("cuda", "").split(".")[:2])
    given |= {"cuda": release} if release in TOOLKITS else {}
    for key, name in (("flashinfer", "flashinfer-python"), ("vllm", "vllm")):
        if key in stated and (version := nearest(name, stated[key])):
            given[key] = version
        elif key in stated:
            return f"{key} {stated[key]}", ""  # older than all that is known: --target refuses it
    given |= {key: stated[key].partition("+")[0] for key in ("torch", "cubin", "jit-cache") if key in stated}
    words = ",".join(f"{key}={value}" for key, value in given.items())
    if int(given["sm"]) not in SINCE:
        return words, ""
    return words, by_what(report, judged(words, report["environment"] or ""))


def judged(words: str, environment: str) -> Report:
    """The report that --target gives where nothing is wrong but what lines of the environment say of CUDA_HOME."""
    target = reading.target(words)
    found, _ = targeting.gpus_of(target)({})
    package = replace(HEALTHY.facts.flashinfer, architectures=Missing(reason="its files are not here"))
    facts = replace(HEALTHY.facts, gpus=found, flashinfer=package)
    if not target.driver:
        facts = replace(facts, gpus=replace(facts.gpus, driver=Missing(reason="the report states none")))
    if "torch" not in target.versions:
        unstated = Missing(reason="the report states none")
        facts = replace(facts, toolkit=replace(facts.toolkit, torch_cuda=unstated))
        facts = replace(facts, packages={**facts.packages, "torch": unstated})
    facts = targeting.facts_for(facts, target, Depth.STATIC)
    if home := _CUDA_HOME.search(environment):
        facts = with_home(facts, home[1])
    planned = planning.plan(SPECS, facts, REQUEST)
    return pipeline.conclude(REQUEST, kb=KB, facts=facts, planned=planned, outcomes=(), created="", target=target)


def why_missed(report: dict, words: str) -> str:
    """Why nothing that a report states could foretell it."""
    if "=" not in words:
        return "of that release nothing is known"
    if told := OF_FILES.get(report["cause"]):
        return told
    if not any(f"{key}=" in words for key in ("flashinfer", "vllm")):
        return "it states no release of FlashInfer or vLLM"
    if report["family"] == "toolkit-too-old" and "cuda=" not in words:
        return "it states no toolkit"
    return "nothing is known of it: a rule is wanted"


def with_home(facts: Facts, home: str) -> Facts:
    """The same with that CUDA_HOME: in a folder of wheels the headers are those that torch requires, of its release."""
    jit = facts.toolkit.jit
    if isinstance(jit, Missing):
        return facts
    jit = replace(jit, cuda_home=home, found_by="CUDA_HOME")
    if not home.startswith(("/", "<path>/")):
        jit = replace(jit, nvcc=Missing(reason=f"there is no {home}/bin/nvcc"))
    elif "/site-packages/nvidia/" in home:
        jit = replace(jit, runtime=facts.toolkit.torch_cuda)
    environ = {**facts.environment, "CUDA_HOME": home}
    return replace(facts, environment=environ, toolkit=replace(facts.toolkit, jit=jit))


def by_what(report: dict, foretold: Report) -> str:
    """The finding or row that says it."""
    of_cause = {one.rule for one in faults.load_all() if one.rule and one.cause == report["cause"]}
    grave = [one for one in foretold.findings if one.severity is not Severity.INFO]
    for finding in grave:
        if finding.cause == report["cause"] or finding.id in of_cause:
            return finding.id
    row = next((one for one in foretold.features if one.feature == ROWS.get(report["cause"])), None)
    if row is not None and (row.verdict is Verdict.UNSUPPORTED or row.verdict.is_failure):
        return f"{row.feature} is {row.verdict}"
    return ""


_KEYS = {
    "flashinfer-python": "flashinfer",
    "vllm": "vllm",
    "torch": "torch",
    "flashinfer-cubin": "cubin",
    "flashinfer-jit-cache": "jit-cache",
}

if __name__ == "__main__":
    sys.exit(main())
