"""What installed packages require, by the markers of the examined interpreter, and which of it is not installed."""

from __future__ import annotations

import functools

from packaging.markers import UndefinedComparison, UndefinedEnvironmentName
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from fi_doctor.conditions.ranges import parse_version
from fi_doctor.model import Facts, Missing, Package

_IMPLEMENTATIONS = {"cpython": "CPython", "pypy": "PyPy", "graalpy": "GraalVM"}


def not_installed(facts: Facts) -> tuple[object, ...] | Missing:
    """The Requires-Dist lines of flashinfer-python about packages that are looked for and are not there.

    Those of extras are left out, and those about packages that nobody looks for: nothing is known of them.
    """
    package = facts.packages.get("flashinfer-python", Missing(reason="flashinfer-python was not looked for"))
    if isinstance(package, Missing):
        return package
    return tuple(line for line in package.requires if _is_not_installed(line, facts))


def applicable(line: str, facts: Facts) -> Requirement | None:
    """A Requires-Dist line, without extras asked for; None where it holds elsewhere only, or cannot be read."""
    wanted = _parsed(line)
    if wanted is None or wanted.marker is None:
        return wanted
    return wanted if _holds(line, *marker_environment(facts).items()) else None


def required(name: str, facts: Facts, *, by: str) -> Requirement | None:
    """The first line of an installed package about another that applies; None where there is none."""
    package = facts.packages.get(by)
    lines = package.requires if isinstance(package, Package) else ()
    found = (applicable(line, facts) for line in lines)
    return next((one for one in found if one is not None and one.name == name), None)


def marker_environment(facts: Facts) -> dict[str, str]:
    """What markers ask about, of the examined interpreter and its machine; no extra is asked for.

    Our own Python may be of another version. FlashInfer is for Linux; the version of the kernel's build is not known.
    """
    version = facts.interpreter.version.rstrip("+")  # a build of no release, "3.13.0rc1+"
    implementation = facts.interpreter.implementation.lower()
    return {
        "implementation_name": implementation,
        "implementation_version": version,
        "os_name": "posix",
        "platform_machine": facts.system.machine,
        "platform_python_implementation": _IMPLEMENTATIONS.get(implementation, facts.interpreter.implementation),
        "platform_release": facts.system.kernel,
        "platform_system": "Linux",
        "platform_version": "",
        "python_full_version": version,
        "python_version": ".".join(version.split(".")[:2]),
        "sys_platform": "linux",
        "extra": "",
    }


@functools.cache
def _parsed(line: str) -> Requirement | None:
    """Several conditions ask for the same eighty lines of vLLM's."""
    try:
        wanted = Requirement(line)
    except InvalidRequirement:
        return None
    if not all(one.operator == "===" or parse_version(one.version.removesuffix(".*")) for one in wanted.specifier):
        return None
    wanted.name = canonicalize_name(wanted.name)
    return wanted


@functools.cache
def _holds(line: str, *environment: tuple[str, str]) -> bool:
    """A difference between two reports asks this again for each fact that is not the same."""
    wanted = _parsed(line)
    if wanted is None or wanted.marker is None:
        return True
    try:
        return wanted.marker.evaluate(dict(environment))
    except (UndefinedComparison, UndefinedEnvironmentName, ValueError):  # also by Python, of numbers without end
        return False


def _is_not_installed(line: str, facts: Facts) -> bool:
    wanted = applicable(line, facts)
    if wanted is None:
        return False
    return wanted.name in facts.packages and not isinstance(facts.packages[wanted.name], Package)
