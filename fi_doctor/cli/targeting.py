"""--target: a machine that is not here, by the name of its GPU or by its parts."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping

from packaging.version import Version

from fi_doctor.conditions.compilers import SINCE, TOOLKITS
from fi_doctor.conditions.drivers import BRANCHES
from fi_doctor.conditions.ranges import parse_version
from fi_doctor.errors import UsageError
from fi_doctor.explaining.gpus import sm_of
from fi_doctor.knowledge import gpus, pins
from fi_doctor.model.targets import Target

_EXAMPLE = "fi-doctor check --target h200,driver=580,cuda=13.0"
_PACKAGES = {
    "flashinfer": "flashinfer-python",
    "vllm": "vllm",
    "torch": "torch",
    "cubin": "flashinfer-cubin",
    "jit-cache": "flashinfer-jit-cache",
}
_KEYS = ("gpu", "sm", "gpus", "driver", "cuda", *_PACKAGES)
_MOST_GPUS = 1024
_RENAMED = {101: 110}  # Thor, in CUDA 13
# Those of Kepler, Maxwell, Pascal and Xavier: https://developer.nvidia.com/cuda-legacy-gpus.
_OLDER = frozenset({30, 32, 35, 37, 50, 52, 53, 60, 61, 62, 72})
_TOO_OLD = "FlashInfer takes no GPU older than SM75"
_A_CAPABILITY = re.compile(r"sm_?\d{2,3}[af]?|\d{1,2}\.\d", re.ASCII | re.IGNORECASE)
_A_NUMBER_OF = re.compile(
    r"(?P<first>\d{1,4}) ?x ?(?P<name>.+)|(?P<other>.+?) ?x ?(?P<last>\d{1,4})", re.ASCII | re.IGNORECASE
)
_DRIVER = re.compile(r"(\d{3,4})(?:\.\d{1,4}){0,2}", re.ASCII)
_PATCH = re.compile(r"(\d{1,2}\.\d)\.\d{1,3}", re.ASCII)
_OF_CUDA = re.compile(r"[^+]*\+cu(\d+)(\d)", re.ASCII)
_VERSION = re.compile(r"\d+(?:\.\d+)*[A-Za-z0-9.+-]*", re.ASCII)


def target(words: str, *, needs_gpu: bool = True) -> Target:
    """What the words of --target describe; its SM is 0 where they name no GPU and none is needed.

    Errors: UsageError, with what is near to a word that means nothing.
    """
    given = _pairs(words)
    named = given.get("gpu", "")
    gpu = _gpu(named, given) if named else None
    sm = _sm(given["sm"], given) if "sm" in given else gpu.sm if gpu else 0
    if not sm and needs_gpu:
        raise _wrong("it names no GPU", todo=_EXAMPLE)
    if gpu is not None and gpu.sm != sm:
        raise _wrong(f"{gpu.name} is of SM{gpu.sm}, and sm={given['sm']} is not", todo="leave one of the two out")
    return Target(
        words=words,
        sm=sm,
        name=gpu.name if gpu else "",
        gpus=_number(given.get("gpus", "1"), given),
        driver=_driver(given.get("driver", ""), given),
        cuda=_cuda(given.get("cuda", ""), given),
        versions={_PACKAGES[key]: _version(key, value, given) for key, value in given.items() if key in _PACKAGES},
    )


def names_number(words: str) -> bool:
    """Whether the words say how many GPUs there are."""
    return "gpus" in _pairs(words)


def _pairs(words: str) -> dict[str, str]:
    """Key -> value; a word without "=" is a GPU: its name, how many of them ("8xH100"), or its compute capability."""
    found: dict[str, str] = {}
    for word in words.split(","):
        key, equals, value = (part.strip() for part in word.partition("="))
        if not equals:
            key, value, number = _of_gpu(key)
            if number and "gpus" in found:
                raise _wrong("gpus is given twice", todo="leave one of the two out")
            found |= {"gpus": number} if number else {}
        if not value:
            raise _wrong(f"{word.strip()!r} has no value" if equals else "an empty word names nothing", todo=_EXAMPLE)
        if key not in _KEYS:
            near = difflib.get_close_matches(key, _KEYS, n=1)
            raise _wrong(
                f"there is no {key!r}{f'; did you mean {near[0]}' if near else ''}",
                why=f"it takes {', '.join(_KEYS)}",
                todo=_EXAMPLE,
            )
        if key in found:
            raise _wrong(f"{key} is given twice", todo="leave one of the two out")
        found[key] = value
    return found


def _of_gpu(word: str) -> tuple[str, str, str]:
    """Key and value of a word that stands alone, and the number of GPUs that it says; "" where it says none."""
    if _A_CAPABILITY.fullmatch(word):
        return "sm", word, ""
    if (several := _A_NUMBER_OF.fullmatch(word)) and not gpus.named(word):
        name = several["name"] or several["other"]
        if gpus.named(name):
            return "gpu", name, several["first"] or several["last"]
    return "gpu", word, ""


def _gpu(name: str, words: Mapping[str, str]) -> gpus.Named:
    found = gpus.named(name)
    if len(found) == 1:
        return found[0]
    if found:
        several = " and ".join(f"{one.name} (SM{one.sm})" for one in found)
        raise _wrong(f"{name!r} fits {several}", todo=_with(words, "gpu", _word(found[-1].name)))
    if sms := gpus.of_generation(name):
        why = f"its GPUs have compute capability {_listed(sms)}"
        more = ", or another of these" if len(sms) > 1 else ""
        raise _wrong(f"{name!r} is a generation of GPUs", why=why, todo=f"{_by_number(words, sms[0])}{more}")
    if sm := sm_of(name):  # one that is like it by name may be another GPU
        if sm in _OLDER:
            raise _wrong(f"{name!r} is of SM{sm}: {_TOO_OLD}", todo=_by_number(words, 75))
        raise _wrong(f"no GPU is known as {name!r}", why=f"by its name it is of SM{sm}", todo=_by_number(words, sm))
    near = gpus.near(name)
    raise _wrong(
        f"no GPU is known as {name!r}",
        why=f"near to it are {', '.join(near)}" if near else "it is none of those that fi-doctor knows",
        todo=_with(words, "gpu", _word(near[0])) if near else "--target sm=NN, by its compute capability: 90 for 9.0",
    )


def _by_number(words: Mapping[str, str], sm: int) -> str:
    """The line that was given with a compute capability in place of the GPU's name."""
    return _with({("sm" if key == "gpu" else key): value for key, value in words.items()}, "sm", str(sm))


def _sm(value: str, words: Mapping[str, str]) -> int:
    """From "90", "9.0", "90a" or "sm_90": 90."""
    digits = re.fullmatch(r"(?:sm_?)?(\d{1,2})\.?(\d)[af]?", value.lower(), re.ASCII)
    known = sorted(SINCE)
    sm = int("".join(digits.groups())) if digits else 0
    if sm in known:
        return sm
    if sm in _RENAMED:
        now = _RENAMED[sm]
        raise _wrong(f"sm={value}: since CUDA 13 it is called SM{now}", todo=_with(words, "sm", str(now)))
    if sm in _OLDER:
        raise _wrong(f"sm={value}: {_TOO_OLD}", todo=_with(words, "sm", "75"))
    near = sorted(sorted(known, key=lambda one: abs(one - sm))[:2]) if sm else known
    raise _wrong(
        f"sm={value}: no GPU has that compute capability",
        why=f"near to it are {_listed(near)}",
        todo=_with(words, "sm", str(near[0])),
    )


def _number(value: str, words: Mapping[str, str]) -> int:
    if value.isascii() and value.isdecimal() and len(value) < 9 and 1 <= int(value) <= _MOST_GPUS:
        return int(value)
    raise _wrong(f"gpus={value}: a number from 1 to {_MOST_GPUS}", todo=_with(words, "gpus", "2"))


def _driver(value: str, words: Mapping[str, str]) -> str:
    form = _DRIVER.fullmatch(value)
    if not value or (form and form[1] in BRANCHES):
        return value
    if form:
        near = sorted(BRANCHES, key=lambda branch: abs(int(branch) - int(form[1])))[:2]
        raise _wrong(
            f"driver={value}: of branch {form[1]} nothing is known",
            why=f"near to it are {_listed(sorted(near))}; the newest known is {max(BRANCHES)}",
            todo=_with(words, "driver", near[0]),
        )
    raise _wrong(f"driver={value}: it is a version, or its first number", todo=_with(words, "driver", "580"))


def _cuda(value: str, words: Mapping[str, str]) -> str:
    """A release of the toolkit; of a patch of it, as images are called, "12.8.1", the release: "12.8"."""
    if not value:
        return ""
    release = _PATCH.fullmatch(value)
    if (release[1] if release else value) in TOOLKITS:
        return release[1] if release else value
    runs = Version(BRANCHES.get(words.get("driver", "").partition(".")[0], TOOLKITS[-1]))
    known = [one for one in TOOLKITS if Version(one) <= runs]
    near = [one for one in known if one.partition(".")[0] == value.partition(".")[0]] or [*known[-2:]]
    raise _wrong(
        f"cuda={value}: no such release of the toolkit is known",
        why=f"near to it {'are' if len(near) > 1 else 'is'} {_listed(near)}",
        todo=_with(words, "cuda", near[-1]),
    )


def _version(key: str, value: str, words: Mapping[str, str]) -> str:
    known = list(pins.load().get(_PACKAGES[key], {}))
    if not _VERSION.fullmatch(value):
        raise _wrong(f"{key}={value}: it is no version", todo=_with(words, key, known[-1] if known else "1.0"))
    parsed = parse_version(value)
    if (tag := _OF_CUDA.fullmatch(value)) and f"{tag[1]}.{tag[2]}" not in TOOLKITS:
        raise _wrong(
            f"{key}={value}: there is no CUDA {tag[1]}.{tag[2]}", todo=_with(words, key, value.partition("+")[0])
        )
    if key in ("cubin", "jit-cache"):  # they come with FlashInfer, also with releases between those that were read
        released = list(pins.load()["flashinfer-python"])
        bases = {Version(one).base_version for one in released}
        known = [] if parsed is not None and parsed.base_version in bases else released
    # What follows a plus names the CUDA of a wheel: of every release of torch there are several.
    if known and (str(parsed.public) if parsed is not None and key == "torch" else value) not in known:
        near = _around(parsed, known)
        raise _wrong(
            f"{key}={value}: of that release nothing is known",
            why=f"near to it {'are' if len(near) > 1 else 'is'} {', '.join(near)}; the newest known is {known[-1]}",
            todo=_with(words, key, near[0]),
        )
    return value


def _around(wanted: Version | None, known: list[str]) -> list[str]:
    """The last that is not newer and the first that is; of what is no version of the usual kind the newest."""
    if wanted is None:
        return known[-1:]
    older = [one for one in known if Version(one) <= wanted]
    newer = [one for one in known if Version(one) > wanted]
    return [*older[-1:], *newer[:1]]


def _listed(values: Iterable[object]) -> str:
    return ", ".join(str(one) for one in values)


def _word(name: str) -> str:
    return name.removeprefix("NVIDIA ").removeprefix("GeForce ").lower().replace(" ", "-")


def _with(words: Mapping[str, str], key: str, value: str) -> str:
    """The line that was given with another value; of the first word, a GPU's name, its key is left out."""
    changed = {**words, key: value}
    return f"--target {','.join(one if name == 'gpu' else f'{name}={one}' for name, one in changed.items())}"


def _wrong(what: str, *, why: str = "", todo: str) -> UsageError:
    return UsageError(f"--target: {what}", why=why, todo=todo)
