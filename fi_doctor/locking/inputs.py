"""The value that an input has now: a version, or what is in a file. NVML and files are asked, and no GPU is used."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

from fi_doctor.facts.environment import shown
from fi_doctor.facts.files import is_file, matching, read_whole
from fi_doctor.locking.digests import Digests, of_text
from fi_doctor.locking.loads import file_of
from fi_doctor.locking.model import ABSENT, NOT_KNOWN
from fi_doctor.locking.names import ALL_PYTHON, FLASHINFER, VLLM
from fi_doctor.locking.peers import between, tracing
from fi_doctor.locking.resolving import NAMESPACE, Resolver
from fi_doctor.model import (
    OWN,
    Driver,
    Facts,
    FlashInfer,
    KnowledgeBase,
    Library,
    Missing,
    Nvcc,
    Package,
    ProbeSpec,
    selects,
)
from fi_doctor.model.numbers import whole
from fi_doctor.model.secrets import HIDDEN, held, hidden

_SITES = ("site-packages", "dist-packages")  # where Python reads .pth files
_CODE = re.compile(r"^import[ \t]", re.MULTILINE)  # a line that is run. Source: site.addpackage
_PLUGINS = re.compile(r"^\[torch\.backends\]\s*\n(?P<lines>(?:[^\[\n].*\n?|\n)*)", re.MULTILINE)  # torch imports them
_NUMBER = re.compile(r"\d{1,9}")
_LONGEST = 200  # characters of a value that are shown as they are


class Inputs:
    """The inputs of one machine, read when they are asked for."""

    def __init__(  # noqa: PLR0913 - the whole of what an input may be
        self,
        facts: Facts,
        kb: KnowledgeBase,
        specs: tuple[ProbeSpec, ...],
        *,
        digests: Digests,
        environ: Mapping[str, str],
        loads: Mapping[str, tuple[str, ...]],
    ) -> None:
        """loads: those of the lock that is compared, or that is made."""
        self._facts = facts
        self._kb = kb
        self._probes = {spec.id: spec for spec in specs}
        self._digests = digests
        self._environ = environ
        self._loads = loads
        self._resolver = Resolver(facts.interpreter.sys_path, facts.interpreter.version)
        flashinfer = facts.flashinfer
        self._flashinfer = flashinfer if isinstance(flashinfer, FlashInfer) else None

    def read(self, names: Iterable[str]) -> dict[str, str]:
        """The values of these names, by name."""
        return {name: self.value(name) for name in sorted(names)}

    def value(self, name: str) -> str:
        """The value of one name; NOT_KNOWN is never the value of a locked input, so that its rows are not believed."""
        kind, _, rest = name.partition(":")
        readers = {
            "cache": self._cached,
            "gpu": self._gpu,
            "jit-cache": self._prebuilt,
            "knowledge": self._knowledge,
            "library": self._library,
            "loads": self._loaded,
            "package": self._package,
            "peers": self._peers,
            "probe": self._probe,
            "setting": self._setting,
            "variable": self._variable,
        }
        if kind in readers:
            return readers[kind](rest)
        if kind == "python":
            return f"{self._facts.interpreter.implementation} {self._facts.interpreter.version}"
        if kind == "startup":
            return self._startup()
        if kind == "tracing":
            return tracing()
        if kind == "workspace":
            return self._workspace()
        if kind == "driver":
            driver = self._facts.gpus.driver
            return driver.version if isinstance(driver, Driver) else ABSENT
        return self._tool(kind, rest)

    def _tool(self, kind: str, rest: str) -> str:
        """What compiles."""
        tools = self._facts.toolkit
        jit, host = tools.jit, tools.host_compiler
        if kind == "cubins":
            return self._cubins()
        if kind == "host-compiler":
            if isinstance(host, Missing):
                return ABSENT
            return f"{_words(tools.host_compiler_version)} {self._digests.file(Path(host))}"
        if kind == "ninja":  # which looks at every module before it is loaded; any will do
            return ABSENT if isinstance(tools.ninja, Missing) else "there"
        if kind not in ("nvcc", "cccl", "toolkit"):
            return NOT_KNOWN
        if isinstance(jit, Missing):
            return ABSENT
        if kind == "cccl":
            return jit.cccl if isinstance(jit.cccl, str) else ABSENT
        if isinstance(jit.compiler, Missing):
            return ABSENT
        if kind == "nvcc":
            return f"{_words(jit.compiler.build)} in {jit.cuda_home}, gates read {_words(tools.gate_version)}"
        return self._digests.file(_home(jit.compiler) / rest)

    def _gpu(self, rest: str) -> str:
        """Whether there is a GPU of a kind that CUDA may use, or so many: "present", with what splits it."""
        sm, _, number = rest.partition(":")
        gpus = self._facts.gpus.gpus
        seen = [] if isinstance(gpus, Missing) else [gpu for gpu in gpus if not isinstance(gpu.cuda_index, Missing)]
        ours = [gpu for gpu in seen if f"sm{gpu.sm}" == sm]
        if (least := whole(number or "1")) is None:
            return NOT_KNOWN
        if len(ours) < least:
            return ABSENT
        return "present, in MIG mode" if any(gpu.mig is True for gpu in ours) else "present"

    def _peers(self, rest: str) -> str:
        """How so many GPUs of a kind ("8": at most, "4+": at least, too) reach each other; long words as digest."""
        sm, _, number = rest.partition(":")
        most = whole(number.removesuffix("+"))
        if most is None:
            return NOT_KNOWN
        said = between(self._facts, sm, most, least=most if number.endswith("+") else 2)
        return said if len(said) <= _LONGEST else of_text(said)

    def _probe(self, name: str) -> str:
        """The file of one of ours; of somebody else's the whole folder, in which its kernel may lie, too."""
        spec = self._probes.get(name)
        if spec is None:
            return ABSENT
        path = Path(spec.path)
        return self._digests.file(path) if spec.origin == OWN else self._digests.tree(path.parent)

    def _package(self, rest: str) -> str:
        name, _, path = rest.partition(":")
        found = self._facts.packages.get(name)
        if not path:
            return _version(found)
        root = self._root(name, found)
        if root is None:
            return ABSENT
        if path == ALL_PYTHON:
            return self._digests.tree(root, ".py", without="data")  # sources for compilers, which nothing imports
        if path.endswith("/"):
            return self._digests.tree(root / path)
        return self._digests.file(root / path)

    def _root(self, name: str, found: Package | Missing | None) -> Path | None:
        if name == FLASHINFER:
            return Path(self._flashinfer.root) if self._flashinfer else None
        if name == VLLM and not isinstance(self._facts.vllm, Missing):
            return Path(self._facts.vllm.root)
        return Path(found.location) / name if isinstance(found, Package) else None

    def _cached(self, module: str) -> str:
        if self._flashinfer is None or isinstance(self._flashinfer.cache_dir, Missing):
            return ABSENT
        return self._digests.file(Path(self._flashinfer.cache_dir) / "cached_ops" / module / f"{module}.so")

    def _prebuilt(self, module: str) -> str:
        """The library of a module in flashinfer-jit-cache, or in its wheel for each architecture."""
        packages = [one for name, one in self._facts.packages.items() if name.startswith("flashinfer-jit-cache")]
        places = {one.location for one in packages if isinstance(one, Package)}
        found = sorted(
            path
            for place in places
            for path in matching(place, f"flashinfer_jit_cache*/jit_cache/{module}/{module}.so")
        )
        return " ".join(self._digests.file(path) for path in found) or ABSENT

    def _library(self, name: str) -> str:
        library = self._facts.libraries.get(name)
        return self._digests.file(Path(library.path)) if isinstance(library, Library) else ABSENT

    def _cubins(self) -> str:
        """The names and sizes of the cubins, of which there are thousands."""
        folder = self._flashinfer.cubin_dir if self._flashinfer else Missing(reason="there is no FlashInfer")
        if isinstance(folder, Missing):
            return ABSENT
        return self._digests.listing(Path(folder), ".cubin")

    def _loaded(self, rest: str) -> str:
        """The files that sys.path leads to today, of what an import loads of one package."""
        if rest not in self._loads:
            return NOT_KNOWN
        files = [(word, file_of(word, self._resolver)) for word in self._loads[rest]]
        folders = [f"{word}/" for word, file in files if file == NAMESPACE]
        plain = [(word, "" if file == NAMESPACE else file) for word, file in files]
        found = self._digests.files(f"{self._facts.interpreter.executable} loads {rest}", plain)
        return " ".join([*([] if found == ABSENT and folders else [found]), *folders])

    def _startup(self) -> str:
        """What may change how anything is imported: code in .pth files, archives on sys.path, plugins of torch."""
        found = []
        for entry in map(Path, self._resolver.sys_path):
            if is_file(entry):
                found.append(f"{entry.name} {self._digests.file(entry)}")
            names = [name for some in self._resolver.listing(str(entry)).values() for name in some]
            if entry.name in _SITES:
                pth = (entry / name for name in sorted(names) if name.endswith(".pth"))
                found += [f"{path.name} {self._digests.file(path)}" for path in pth if _CODE.search(_text(path))]
            infos = (entry / name for name in sorted(names) if name.endswith((".dist-info", ".egg-info")))
            found += [f"{info.name} {text}" for info in infos if (text := _plugins(_text(info / "entry_points.txt")))]
        return of_text("\n".join(found)) if found else ABSENT

    def _variable(self, name: str) -> str:
        """The value where it may be shown, else its digest."""
        value = self._environ.get(name)
        if value is None:
            return ABSENT
        is_secret = shown(name, value) != value or hidden(value, held(self._environ)) != value
        is_plain = value and len(value) <= _LONGEST and not is_secret and value != HIDDEN
        return f"={value}" if is_plain or not value else of_text(value)

    def _setting(self, name: str) -> str:
        """Of a variable that says how much is logged: whether it is a number, since FlashInfer imports with no word."""
        value = self._environ.get(name)
        return "none or a number" if value is None or _NUMBER.fullmatch(value) else self._variable(name)

    def _workspace(self) -> str:
        """Whether FlashInfer can have its cache folder, without which it is not imported."""
        if self._flashinfer is None:
            return ABSENT
        return "writable" if self._flashinfer.cache_writable is True else "not writable"

    def _knowledge(self, feature: str) -> str:
        """What is known of a feature, and the rules that predict something of it."""
        known = [one for one in self._kb.features if one.id == feature]
        rules = [one for one in self._kb.rules if one.predicts is not None and _concerns(one.features, feature)]
        return of_text(msgspec.json.encode([known, rules], order="deterministic").decode()) if known else ABSENT


def _text(path: Path) -> str:
    try:
        return read_whole(path).decode("utf-8-sig", "replace")  # Python drops the mark, too, from 3.12 on
    except OSError:
        return ""


def _plugins(text: str) -> str:
    """The lines of entry_points.txt that name what `import torch` imports too."""
    found = _PLUGINS.search(text) if "torch.backends" in text else None
    return found["lines"].strip() if found else ""


def _home(nvcc: Nvcc) -> Path:
    """The toolkit in which an nvcc lives; a wrapper that stands elsewhere has no tools beside it."""
    return Path(os.path.dirname(os.path.dirname(nvcc.resolved)))  # noqa: PTH120 - as the compiler itself reckons


def _version(found: Package | Missing | None) -> str:
    if not isinstance(found, Package):
        return ABSENT
    commit = f" {found.commit}" if found.editable and isinstance(found.commit, str) else ""
    return f"{_words(found.version)}{commit}"


def _words(fact: str | Missing) -> str:
    return fact if isinstance(fact, str) else "not known"


def _concerns(globs: tuple[str, ...], feature: str) -> bool:
    return bool(globs) and selects(globs, feature)
