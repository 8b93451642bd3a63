"""What FlashInfer's source says of names that are asked for; nothing of it is imported."""

from __future__ import annotations

from pathlib import Path

from fi_doctor.facts.admissions import Admissions
from fi_doctor.facts.majors import read_majors
from fi_doctor.facts.public import read_public
from fi_doctor.facts.recorded import Recorded
from fi_doctor.facts.runners import ENDING as RUNNER
from fi_doctor.facts.runners import read_runner
from fi_doctor.facts.symbols import QUICK, Symbols
from fi_doctor.model import Named


def read_named(root: Path, version: str, symbols: tuple[str, ...]) -> Named:
    """What the source says of names, of patterns and of calls; version: what it is called where a name is not found.

    symbols: "flashinfer.norm.rmsnorm", "*awq*", "flashinfer.bmm_fp8(backend='x')", "data/include/flashinfer/x.cuh",
    "data/include/flashinfer/x.cuh:function".
    """
    names = Symbols(root, version, whole=QUICK)
    patterns = [name for name in symbols if "*" in name]
    runners = {name: read_runner(root, name) for name in symbols if RUNNER in name}
    rest = [name for name in symbols if name not in runners and "*" not in name]
    places = {name: names.where(name) for name in rest if "(" not in name}
    calls = [name for name in rest if not _is_generator(name)]
    admissions = Admissions(root, names)
    refused = {name: admissions.of(name) for name in calls} | runners
    return Named(
        symbols=places,
        public=read_public(root, names, patterns),
        majors={name: read_majors(root, place) for name, place in places.items() if _is_generator(name)},
        admissions={name: found for name, found in refused.items() if found},
        altered=Recorded(root).all_altered(".py"),
    )


def _is_generator(name: str) -> bool:
    """FlashInfer names every function that describes a module's build gen_..._module."""
    return name.rpartition(".")[2].startswith("gen_")
