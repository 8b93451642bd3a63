"""fi-doctor: which FlashInfer kernels work here, which do not and why, and what to set."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fi_doctor.api import diagnose, load, plan
    from fi_doctor.errors import DoctorError
    from fi_doctor.model import Report

__all__ = ["DoctorError", "Report", "__version__", "diagnose", "load", "plan"]
__version__ = "0.1.0"

_PLACES = {"DoctorError": "errors", "Report": "model", "diagnose": "api", "load": "api", "plan": "api"}


def __getattr__(name: str) -> object:
    """What programs take from here is imported when it is asked for: the command needs none of it to start."""
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib  # noqa: PLC0415 - as above

    return getattr(importlib.import_module(f"{__name__}.{_PLACES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
