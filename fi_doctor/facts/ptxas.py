"""The ptxas that the installed Triton calls: its own, or the one that a variable names.

Newer Tritons have a second one for SM100 and up, ptxas-blackwell (triton/backends/nvidia/compiler.py:38 in 3.8.0,
get_ptxas); which of them a kernel gets follows the GPU. The version is asked, which takes some milliseconds.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from fi_doctor.facts import asking
from fi_doctor.facts.files import may_be_file
from fi_doctor.facts.nvcc import parse_nvcc_version
from fi_doctor.facts.packages import Survey
from fi_doctor.model import Missing, Ptxas, TritonPtxas

_FOLDER = "backends/nvidia/bin"
_COMMON, _BLACKWELL = ("ptxas", "TRITON_PTXAS_PATH"), ("ptxas-blackwell", "TRITON_PTXAS_BLACKWELL_PATH")


def read_triton_ptxas(survey: Survey, environ: Mapping[str, str]) -> TritonPtxas | Missing:
    """Missing where no triton would be imported."""
    origin = survey.modules.get("triton", Missing(reason="triton was not looked for"))
    if isinstance(origin, Missing):
        return origin
    folder = Path(origin).parent / _FOLDER
    own = folder / _BLACKWELL[0]
    blackwell = _read(folder, *_BLACKWELL, environ) if may_be_file(own) else Missing(reason=f"no {own}", absent=True)
    return TritonPtxas(common=_read(folder, *_COMMON, environ), blackwell=blackwell)


def _read(folder: Path, name: str, variable: str, environ: Mapping[str, str]) -> Ptxas | Missing:
    asked = environ.get(variable, "")
    path = asked or str(folder / name)
    if not os.access(path, os.X_OK):
        return Missing(reason=f"{path} cannot be started")
    said = asking.ask([path], "--version", environ=environ)
    version, _ = parse_nvcc_version(said.stdout.decode(errors="replace"))
    silent = asking.silence([path], said) or said.error
    return Ptxas(
        path=path, found_by=variable if asked else "triton", version=Missing(reason=silent) if silent else version
    )
