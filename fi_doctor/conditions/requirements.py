"""What the installed FlashInfer requires and the examined interpreter does not have."""

from __future__ import annotations

from packaging.requirements import InvalidRequirement, Requirement

from fi_doctor.model import Facts, Missing, Package


def not_installed(facts: Facts) -> tuple[object, ...] | Missing:
    """The Requires-Dist lines of flashinfer-python about packages that are looked for and are not there.

    Those of extras are left out, and those about packages that nobody looks for: nothing is known of them.
    """
    package = facts.packages.get("flashinfer-python", Missing(reason="flashinfer-python was not looked for"))
    if isinstance(package, Missing):
        return package
    return tuple(line for line in package.requires if _is_not_installed(line, facts))


def applicable(line: str) -> Requirement | None:
    """A Requires-Dist line, without extras asked for; None where it holds elsewhere only, or cannot be read."""
    try:
        wanted = Requirement(line)
    except InvalidRequirement:
        return None
    return wanted if wanted.marker is None or wanted.marker.evaluate({"extra": ""}) else None


def _is_not_installed(line: str, facts: Facts) -> bool:
    wanted = applicable(line)
    if wanted is None:
        return False
    return wanted.name in facts.packages and not isinstance(facts.packages[wanted.name], Package)
