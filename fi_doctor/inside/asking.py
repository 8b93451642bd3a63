"""Which JIT modules the variants of a probe need, learnt from their own build() without building anything.

Runs in the examined interpreter, for prebuild.py. FlashInfer's JitSpec.build_and_load is replaced meanwhile by one that
takes note of the spec. Standard library, Python >= 3.9.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import os
import signal
import sys
import types
from collections.abc import Iterator
from typing import Any

from fi_doctor.inside.harness import compiled, load
from fi_doctor.inside.using import kinds_of

ASKING_S = 5  # for one variant; a build() that does more than ask for modules is left to its own process

RAISED_LIMIT = 400  # characters


class Asked(BaseException):
    """A module was asked for, and what comes after it cannot be done without it; not for `except Exception`."""


class TooLong(BaseException):
    """A build() does more than ask for modules."""


class Placeholder:
    """What build_and_load() gives while modules are only asked for: its functions can be taken, not called."""

    def __getattr__(self, name: str) -> Placeholder:
        if name.startswith("__"):
            raise AttributeError(name)
        return self

    def __getitem__(self, key: object) -> Placeholder:
        return self

    def __call__(self, *_: object, **__: object) -> None:
        """A kernel is called."""
        raise Asked


class Needs:
    """Which JIT modules each variant asks for."""

    def __init__(self, core: Any) -> None:
        self.specs: dict[str, Any] = {}
        self.users: dict[str, list[list[str]]] = {}
        self.raised: list[list[str]] = []  # probe, variant and what its build() raised, otherwise than by a stand-in
        self._core = core
        self._user = ["", ""]
        self._made: dict[object, Any] = {}  # what generators gave, for one probe
        self._compiled = functools.cache(compiled)  # a probe file is loaded anew for each variant
        self._replaced: tuple[int, list[tuple[Any, str, Any, Any]]] = (-1, [])  # for how many modules of FlashInfer

    def ask(self, probe: str, path: str, variant: str) -> None:
        """Call build(variant) without building; what it raises will be said by its own process."""
        if probe != self._user[0]:
            self._made.clear()
        self._user = [probe, variant]
        before = {id(cached): cached.cache_info().currsize for cached in getters()}
        with unchanged_environment(), self.noting():
            try:
                with time_limit(ASKING_S):
                    module = load(path, self._compiled(path))
                    module.build(*((variant,) if module.PROBE.get("variants") else ()))
            except Asked:
                pass
            except BaseException as exc:
                self.raised.append([probe, variant, f"{type(exc).__name__}: {exc}"[:RAISED_LIMIT]])
        # A getter that keeps a placeholder would not ask again for the next variant.
        for cached in getters():
            if cached.cache_info().currsize > before.get(id(cached), 0):
                cached.cache_clear()

    @contextlib.contextmanager
    def noting(self) -> Iterator[None]:
        """Replace what builds and loads a module, in every class of specs there is."""
        needs = self

        def note(spec: Any, *_: object, **__: object) -> Placeholder:
            needs.note(spec)
            return Placeholder()

        def note_all(specs: Any, *_: object, **__: object) -> None:
            for spec in specs:
                needs.note(spec)

        saved: list[tuple[Any, str, Any, Any]] = [
            (self._core, "build_jit_specs", self._core.__dict__.get("build_jit_specs"), note_all)
        ]
        for kind in kinds_of(self._core.JitSpec):
            names = ("build_and_load", "build", "load", "try_load")
            saved += [(kind, name, kind.__dict__[name], note) for name in names if name in kind.__dict__]
        saved += self._generators(_count())
        for owner, name, _, replacement in saved:
            setattr(owner, name, replacement)
        try:
            yield
        finally:
            for owner, name, original, _ in saved:
                setattr(owner, name, original)

    def _generators(self, count: int) -> list[tuple[Any, str, Any, Any]]:
        """FlashInfer's functions that make specs, and what stands for each; made once for so many modules."""
        if self._replaced[0] != count:
            made = [(module, name, one, self.once(one)) for module, name, one in generators()]
            self._replaced = (count, made)
        return self._replaced[1]

    def once(self, generator: Any) -> Any:
        """The same function, which makes a spec and writes its sources (hundreds for experts) once for each probe."""

        @functools.wraps(generator)
        def made(*args: Any, **kwargs: Any) -> Any:
            key = (generator, args, tuple(sorted(kwargs.items())))
            try:
                known = key in self._made
            except TypeError:  # a list among the arguments
                return generator(*args, **kwargs)
            if not known:
                self._made[key] = generator(*args, **kwargs)
            return self._made[key]

        return made

    def note(self, spec: Any) -> None:
        """Keep a spec that nvcc compiles; another one (CuTe DSL) ends the asking."""
        if not hasattr(spec, "ninja_path") or not hasattr(spec, "sources"):
            raise Asked
        self.specs.setdefault(spec.name, spec)
        users = self.users.setdefault(spec.name, [])
        if self._user not in users:
            users.append(self._user)


@functools.lru_cache(maxsize=1)
def getters_among(_modules: int) -> list[Any]:
    """The same, found once for so many modules; also those that only a closure holds (make_hashable_cache)."""
    gc.unfreeze()  # a process that was forked from the template has frozen ones, which are not listed
    return [
        one
        for one in gc.get_objects()
        if isinstance(one, functools._lru_cache_wrapper)  # noqa: SLF001 - the type has no other name
        and str(one.__module__).split(".")[0] == "flashinfer"
        and not str(one.__module__).startswith(("flashinfer.jit", "flashinfer.utils"))
    ]


def getters() -> list[Any]:
    """FlashInfer's cached functions outside its JIT, which keep the modules that they loaded."""
    return getters_among(_count())


def generators() -> list[tuple[Any, str, Any]]:
    """FlashInfer's functions that make specs: where each is named, how, and itself."""
    return [
        (module, name, one)
        for key, module in list(sys.modules.items())
        if key.split(".")[0] == "flashinfer"
        for name, one in vars(module).items()
        if name.startswith("gen_")
        and isinstance(one, types.FunctionType)
        and one.__module__.startswith("flashinfer.jit")
    ]


def _count() -> int:
    """How many modules of FlashInfer are imported. Asked often, and there are thousands of others."""
    return sum(name.startswith("flashinfer.") for name in list(sys.modules))


@contextlib.contextmanager
def unchanged_environment() -> Iterator[None]:
    """Put back what a probe changes: its variables are not those of the next one, nor of the compilers."""
    before = dict(os.environ)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


@contextlib.contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Interrupt Python code after that time; what hangs in C is ended from outside."""

    def interrupt(*_: object) -> None:
        raise TooLong

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
