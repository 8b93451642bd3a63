"""The text behind the id of a fault that logs tell."""

from __future__ import annotations

from pathlib import Path

from fi_doctor.knowledge import faults
from fi_doctor.knowledge.plain import indented, plain, wrapped
from fi_doctor.model import Fault, Mend, Sign


def texts(name: str, folder: Path) -> list[str]:
    """The faults of this id or cause, and of a family how many and which."""
    named = faults.ids(folder)
    paths = [named[name]] if name in named else faults.causes(folder).get(name, [])
    family = [_family(name, folder)] if name in faults.families(folder) else []
    return [*family, *(text(fault) for fault in faults.load(paths, folder))]


def _family(name: str, folder: Path) -> str:
    known = faults.load((folder / name).glob("*.yaml"), folder)
    causes = len({fault.cause for fault in known})
    head = f"{name}, a family of {len(known)} faults that logs tell, of {causes} causes; fi-doctor explain ID has more:"
    lines = [f"{fault.id}: {plain(fault.title)}" for fault in known]
    return "\n\n".join((wrapped(head), "\n".join(map(indented, lines)))) + "\n"


def text(fault: Fault) -> str:
    """All that is known of it, as plain text of at most 80 columns but for lines that are copied."""
    blame = "" if fault.flashinfer_at_fault else ", not FlashInfer's fault"
    parts = [
        wrapped(f"{fault.id} (cause {fault.cause}, of {fault.family}{blame})"),
        wrapped(plain(fault.title)),
        wrapped(plain(fault.why)),
        "What tells it in a log:\n" + "\n".join(_sign(sign) for sign in fault.signs),
        "What helps, the best first:\n" + "\n".join(_mend(mend) for mend in fault.fix),
    ]
    if fault.fixed_in:
        parts.append(
            wrapped("Mended in: " + ", ".join(f"{name} {version}" for name, version in fault.fixed_in.items()))
        )
    parts += ["To be sure:\n" + "\n".join(f"  {command}" for command in fault.confirm)] if fault.confirm else []
    parts += [f"The same on a machine: fi-doctor explain {fault.rule}"] if fault.rule else []
    parts += [f"Known from: {fault.source}"] if fault.source else []
    return "\n\n".join(parts) + "\n"


def _sign(sign: Sign) -> str:
    return indented(f"{sign.strength}: {sign.text}") + "\n" + indented(f"from {sign.source}", "      ")


def _mend(mend: Mend) -> str:
    return f"  {plain(mend.line)}" + ("\n" + indented(plain(mend.why), "      ") if mend.why else "")
