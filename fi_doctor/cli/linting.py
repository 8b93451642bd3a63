"""`fi-doctor lint`: policies and manifests by themselves, for a hook that looks at what is committed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from fi_doctor.cli.options import Knowledge

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from fi_doctor.model import Finding
    from fi_doctor.model.given import Stated

_WRONG, _UNTOLD = 1, 3


def lint(
    files: Annotated[
        list[str],
        typer.Argument(metavar="FILE...", help="Policies (*.toml); any other is a manifest, as of --manifest."),
    ],
    *,
    vllm: Annotated[str | None, typer.Option("--vllm", metavar="VERSION", help="What manifests will start.")] = None,
    sglang: Annotated[str | None, typer.Option("--sglang", metavar="VERSION", help="The same of SGLang.")] = None,
    flashinfer: Annotated[
        str | None, typer.Option("--flashinfer", metavar="VERSION", help="The FlashInfer in it.")
    ] = None,
    knowledge: Knowledge = None,
) -> int:
    """What is wrong with policies and manifests.

    Nothing of this machine is read. Of a policy: whether it can be used, and all that is wrong with it. Of a manifest:
    settings that the named releases do not know, never read, cannot read or take for something else; where none is
    named, the release in the tag of vllm/vllm-openai or lmsysorg/sglang. A pyproject.toml without the table is passed
    over.

    Exit codes: 0 nothing is wrong, 1 a setting is, 2 a file cannot be used, 3 of a named release nothing is known.
    """
    from fi_doctor.cli import emit, parse
    from fi_doctor.errors import DoctorError

    named = {"--vllm": vllm, "--sglang": sglang, "--flashinfer": flashinfer}
    owners = {"--vllm": "vllm", "--sglang": "sglang", "--flashinfer": "flashinfer-python"}
    releases = {owners[option]: parse.version(text, option) for option, text in named.items() if text is not None}
    errors: list[DoctorError] = []
    found: list[Finding] = []
    for name in files:
        try:
            found += _looked_at(name, releases, knowledge)
        except DoctorError as error:  # noqa: PERF203 - all files are looked at
            errors.append(error)
    emit.write("".join(f"{line}\n" for one in found for line in _lines(one)), None)
    return _code(errors, found, len(files))


def _looked_at(name: str, releases: dict[str, str], knowledge: str | None) -> Iterable[Finding]:
    """What is wrong with the settings of a manifest. Errors: DoctorError, also all that is wrong with a policy."""
    from pathlib import Path

    path = Path(name)
    if not name.endswith(".toml"):
        from fi_doctor.cli import emit, giving

        return _judged(name, giving.read((), (name,), None, say=emit.say), releases)
    _check_policy(path, knowledge)
    return ()


def _judged(name: str, stated: tuple[Stated, ...], releases: dict[str, str]) -> list[Finding]:
    """By the releases that options name, else by those of the images' tags. Errors: UsageError where there is none."""
    from fi_doctor import settings
    from fi_doctor.cli import emit
    from fi_doctor.diagnosis.given import CALLED
    from fi_doctor.errors import UsageError
    from fi_doctor.facts.serve_words import release_of

    by_release: dict[tuple[tuple[str, str], ...], list[Stated]] = {}
    for image in dict.fromkeys(one.image for one in stated):
        tagged = release_of(image)
        if tagged and tagged[0] not in releases:
            option = f"--{tagged[0]}"
            emit.say(f"{name}: judged by {CALLED[tagged[0]]} {tagged[1]}, the tag of {image}; {option} names another")
        those = {**(dict([tagged]) if tagged else {}), **releases}
        by_release.setdefault(tuple(those.items()), []).extend(one for one in stated if one.image == image)
    if not any(by_release) and stated:
        images = " and ".join(dict.fromkeys(repr(one.image) for one in stated if one.image))
        why = "which settings there are depends on the release that is started"
        why += f", and the tag of {images} names none" if images else ""
        raise UsageError(f"{name} and no release", why=why, todo=f"fi-doctor lint --vllm 0.33.0 {name}")
    judged = (settings.find_in_releases(tuple(some), dict(those)) for those, some in by_release.items())
    return [one for found in judged for one in found]


def _check_policy(path: Path, knowledge: str | None) -> None:
    from fi_doctor.cli import commands, policy
    from fi_doctor.knowledge import policies

    if path.name == policies.PROJECT and path.is_file() and not policies.has_table(path):
        return
    written = policy.load(path, knowledge)
    if wrong := policies.wrong_names(written, *commands.known_names(knowledge)):
        raise policies.refusal(written.name, wrong)


def _lines(finding: Finding) -> Iterable[str]:
    from fi_doctor.reports.text import clean

    yield f"{finding.severity} {finding.id}: {clean(finding.title)}"
    yield f"  why: {clean(finding.why)}"
    for line in finding.fix:
        yield f"  fix: {clean(line)}"


def _code(errors: Iterable[Exception], found: Iterable[Finding], number: int) -> int:
    """The exit code, once all is said on stderr."""
    from fi_doctor.cli import emit, streams
    from fi_doctor.diagnosis.given import NOT_JUDGED
    from fi_doctor.errors import DoctorError
    from fi_doctor.model import Severity
    from fi_doctor.reports.text import amount

    refused = [one for one in errors if isinstance(one, DoctorError)]
    for one in refused:
        streams.tell_error(one)
    wrong = [one for one in found if one.severity in (Severity.ERROR, Severity.WARNING)]
    untold = [one for one in found if one.id == NOT_JUDGED]
    code = max(one.exit_code for one in refused) if refused else _WRONG if wrong else _UNTOLD if untold else 0
    told = {"setting": len(wrong), "file": len(refused)}
    said = " and ".join(amount(count, noun) for noun, count in told.items() if count)
    emit.say(f"fi-doctor: {f'{said} wrong' if said else 'nothing wrong'} in {amount(number, 'file')} (exit {code})")
    return code
