"""What is installed in the interpreter that runs this file, read without importing any of it.

    python survey.py WORD

prints WORD, one JSON object and WORD again, so that the answer can be told from what .pth files and sitecustomize
print. Standard library only, Python 3.8 or newer. importlib.metadata would parse every package of a large
site-packages (a second and more); the folders of sys.path are listed instead and only watched packages are opened.
"""

from __future__ import annotations

import errno
import importlib.util
import json
import os
import re
import stat
import sys

# Importing pathlib would cost more than the whole survey.
# ruff: noqa: PTH100, PTH112, PTH116, PTH118, PTH120, PTH123, PTH208

WATCHED = frozenset(
    {
        "apache-tvm-ffi",
        "cuda-bindings",
        "cuda-python",
        "cuda-tile",
        "flashinfer-cubin",
        "flashinfer-python",
        "ninja",
        "nvidia-cudnn-frontend",
        "nvidia-cutlass-dsl",
        "nvidia-ml-py",
        "pynvml",
        "sglang",
        "torch",
        "triton",
        "vllm",
    }
)
# flashinfer-jit-cache-sm90a and its like are made for one GPU architecture; the CUDA libraries come as nvidia-* wheels.
WATCHED_PREFIXES = ("flashinfer-jit-cache", "nvidia-")
MODULES = ("flashinfer", "flashinfer_cubin", "flashinfer_jit_cache", "torch", "vllm", "sglang", "triton", "tvm_ffi")

# All that these require counts; of others only what they require of the watched ones.
OWNERS = frozenset({"flashinfer-cubin", "flashinfer-jit-cache", "flashinfer-python", "torch", "vllm"})

LARGEST_BYTES = 8 << 20


def main(word: str) -> None:
    """Print the survey between two copies of `word`."""
    text = word + json.dumps(survey()) + word + "\n"
    # sys.stdout may have been replaced by a sitecustomize; descriptor 1 is what the caller reads.
    data = text.encode("ascii")
    while data:
        data = data[os.write(1, data) :]


def survey() -> dict[str, object]:
    """The interpreter, its search path, the watched distributions on it in order, and where modules would come from."""
    _drop_own_folder()
    problems: list[str] = []
    found: list[dict[str, object]] = []
    links: dict[str, str] = {}
    for folder in _unique(sys.path):
        found.extend(_distributions(folder, links, problems))
    for entry in found:
        if entry["name"] in links and _same(links[str(entry["name"])], str(entry["location"])):
            entry["editable"] = True
    return {
        "executable": sys.executable,
        "version": sys.version.split()[0],
        "implementation": sys.implementation.name,
        "prefix": sys.prefix,
        "base_prefix": sys.base_prefix,
        "sys_path": list(sys.path),
        "distributions": found,
        "modules": {name: origin(name) for name in MODULES},
        "problems": problems,
        "environ": environ(),
    }


def environ() -> dict[str, str]:
    """The variables byte for byte, as latin-1; what options of the interpreter say, as the variables that say it."""
    found = {name.decode("latin-1"): value.decode("latin-1") for name, value in os.environb.items()}
    if sys.flags.ignore_environment:
        found = {name: value for name, value in found.items() if not name.startswith("PYTHON")}
    if sys.flags.no_user_site:
        found["PYTHONNOUSERSITE"] = "1"
    return found


def _drop_own_folder() -> None:
    """Take this file's folder off sys.path, where Python 3.10 and older put it (newer ones know PYTHONSAFEPATH)."""
    own = os.path.dirname(os.path.abspath(__file__))
    if not getattr(sys.flags, "safe_path", False) and sys.path and _same(sys.path[0] or os.curdir, own):
        del sys.path[0]


def _unique(folders: list[str]) -> list[str]:
    """Each place of sys.path once, in order: the same folder under two names holds one copy, not two."""
    seen: dict[str, str] = {}
    for folder in folders:
        seen.setdefault(os.path.realpath(folder or os.curdir), folder or os.curdir)
    return list(seen.values())


def _distributions(folder: str, links: dict[str, str], problems: list[str]) -> list[dict[str, object]]:
    """The watched distributions of one sys.path entry, in the order in which importlib.metadata would find them."""
    try:
        names = os.listdir(folder)
    except FileNotFoundError:
        return []  # sys.path commonly names places that do not exist (python311.zip)
    except NotADirectoryError:
        return _in_archive(folder, problems)
    except OSError as error:
        problems.append(f"{folder}: {error.strerror or error}")
        return []
    infos = [name for name in names if name.endswith(".dist-info")]
    eggs = [name for name in names if name.endswith(".egg-info") or name == "EGG-INFO"]
    for name in names:
        if name.endswith(".egg-link"):
            links[_canonical(name[: -len(".egg-link")])] = _first_line(os.path.join(folder, name))
    found = [_describe(folder, name) for name in infos + eggs if _watched(name) or name == "EGG-INFO"]
    return [entry for entry in found if _is_watched(str(entry["name"]))]


def _in_archive(path: str, problems: list[str]) -> list[dict[str, object]]:
    """The watched distributions of a zip file (a wheel or egg) on sys.path."""
    import zipfile
    import zlib

    found: list[dict[str, object]] = []
    try:
        _check_plain(path)
        with zipfile.ZipFile(path) as archive:
            for name in archive.namelist():
                top, _, rest = name.partition("/")
                if top.endswith(".dist-info") and rest == "METADATA" and _watched(top):
                    with archive.open(name) as stream:
                        headers = _parse(stream.read(LARGEST_BYTES))
                    found.append(_entry_of(top, path, os.path.join(path, top), headers))
    except (OSError, zipfile.BadZipFile, zlib.error, EOFError, ValueError, RuntimeError) as error:
        problems.append(f"{path}: {error or 'it is cut off'}")
    return found


def _describe(folder: str, name: str) -> dict[str, object]:
    """One distribution from its metadata folder (or, for old eggs, its file)."""
    place = os.path.join(folder, name)
    candidates = [os.path.join(place, "METADATA"), os.path.join(place, "PKG-INFO"), place]
    metadata = next((path for path in candidates if os.path.lexists(path) and not os.path.isdir(path)), candidates[0])
    try:
        headers = _parse(_read(metadata))
    except OSError as error:
        headers = {"problem": [f"{metadata}: {error.strerror or error}"]}
    entry = _entry_of(name, folder, place, headers)
    entry.update(_direct_url(os.path.join(place, "direct_url.json")))
    return entry


def _entry_of(name: str, folder: str, place: str, headers: dict[str, list[str]]) -> dict[str, object]:
    """The record of one distribution."""
    declared = headers.get("name", [""])[0]
    canonical = _canonical(declared) if name == "EGG-INFO" else _canonical(_stem(name))
    return {
        "name": canonical,
        "version": _version_of(place, headers),
        "location": folder,
        "metadata": place,
        "editable": False,
        "source": _missing("installed from files, not from a source tree"),
        "commit": _missing(f"{place} has no record of a commit"),
        "requires": [line for line in headers.get("requires-dist", []) if _counts(line, canonical)],
    }


def _version_of(place: str, headers: dict[str, list[str]]) -> object:
    if "problem" in headers:
        return _missing(headers["problem"][0])
    version = headers.get("version", [""])[0]
    if not version:
        return _missing(f"{place} has no Version line")
    if "\ufffd" in version:
        return _missing(f"the Version line of {place} is not valid UTF-8")
    return version


def _parse(data: bytes) -> dict[str, list[str]]:
    """The headers of a METADATA file by lower-case name; the description after the empty line is not read."""
    head = data.replace(b"\r\n", b"\n").partition(b"\n\n")[0].decode("utf-8", "replace")
    headers: dict[str, list[str]] = {}
    for line in head.split("\n"):
        key, colon, value = line.partition(":")
        if colon and not key[:1].isspace():
            headers.setdefault(key.strip().lower(), []).append(value.strip())
    return headers


def _direct_url(path: str) -> dict[str, object]:
    """What pip recorded of an installation from a folder or a repository (PEP 610)."""
    try:
        data = json.loads(_read(path).decode("utf-8", "replace"))
        url = data.get("url", "")
        found: dict[str, object] = {}
        if data.get("dir_info", {}).get("editable") is True:
            found["editable"] = True
        if url.startswith("file://"):
            from urllib.parse import unquote

            found["source"] = unquote(url[len("file://") :])
        commit = data.get("vcs_info", {}).get("commit_id")
        if isinstance(commit, str) and commit:
            found["commit"] = commit
    except (OSError, ValueError, AttributeError, RecursionError):
        return {}  # most packages have none, and a broken one says nothing
    return found


def origin(module: str) -> object:
    """The file that `import module` would run; finding a top-level module imports nothing."""
    try:
        spec = importlib.util.find_spec(module)
    except Exception as error:  # import hooks of others run here and may fail in any way
        return _missing(f"looking for {module} failed: {type(error).__name__}: {error}")
    if spec is None:
        return _missing(f"no module {module} on sys.path of {sys.executable}")
    if spec.origin is None or spec.origin == "namespace":
        places = ", ".join(list(spec.submodule_search_locations or [])[:3])
        return _missing(f"{module} is only a folder without __init__.py: {places}")
    return spec.origin


def _first_line(path: str) -> str:
    try:
        return _read(path).decode("utf-8", "replace").partition("\n")[0].strip()
    except OSError:
        return ""


def _read(path: str) -> bytes:
    """All of a plain file; OSError for a pipe, for which somebody would have to write, and for what is no metadata."""
    _check_plain(path)
    with open(path, "rb") as stream:
        data = stream.read(min(os.fstat(stream.fileno()).st_size, LARGEST_BYTES) + 1)
    if len(data) > LARGEST_BYTES:
        raise OSError(errno.EFBIG, f"it is larger than {LARGEST_BYTES >> 20} MiB")
    return data


def _check_plain(path: str) -> None:
    if not stat.S_ISREG(os.stat(path).st_mode):
        raise OSError(errno.EINVAL, "it is not a file")


def _stem(name: str) -> str:
    """The distribution's name in "flashinfer_python-0.5.3.dist-info" or "vllm.egg-info"."""
    return name.rpartition(".")[0].partition("-")[0]


def _watched(folder_name: str) -> bool:
    return _is_watched(_canonical(_stem(folder_name)))


def _is_watched(name: str) -> bool:
    return name in WATCHED or name.startswith(WATCHED_PREFIXES)


def _counts(line: str, owner: str) -> bool:
    """Whether a Requires-Dist line is told; what somebody would have to ask for (an extra) is not required."""
    if _is_watched(_requirement_name(line)):
        return True
    return owner in OWNERS and re.search(r"\bextra\b", line.partition(";")[2]) is None


def _requirement_name(line: str) -> str:
    match = re.match(r"[A-Za-z0-9._-]+", line)
    return _canonical(match.group()) if match else ""


def _canonical(name: str) -> str:
    """The one spelling of a distribution's name (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _same(one: str, other: str) -> bool:
    return os.path.realpath(one) == os.path.realpath(other)


def _missing(reason: str) -> dict[str, str]:
    return {"kind": "missing", "reason": reason}


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "")
