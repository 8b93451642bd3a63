"""Every parser of what comes from outside, in one table: what it is given, and which errors are an answer.

Others than those named here are mistakes of ours: fi-doctor would end with exit code 4, or lose what it had read.
"""

from __future__ import annotations

import atexit
import functools
import io
import os
import pathlib
import shutil
import sys
from collections.abc import Callable
from typing import NamedTuple
from unittest import mock

import fuzz_seeds as seeds

from fi_doctor import knowledge, pipeline
from fi_doctor.cli import giving, modelling
from fi_doctor.conditions import ranges
from fi_doctor.errors import DoctorError
from fi_doctor.explaining import diagnose as diagnosing
from fi_doctor.explaining import embedded, inputs
from fi_doctor.explaining.diagnose import Source
from fi_doctor.facts import (
    binaries,
    builds,
    cgroups,
    choices,
    container,
    environment,
    host_limits,
    imports,
    loader,
    mounts,
    network,
    ninja_deps,
    nvcc,
    nvml_reasons,
    permissions,
    ray,
    registry_text,
    remembered,
    served_model,
    server,
    start_log,
    starting,
    system,
    toolchain,
    torch_loading,
    users,
)
from fi_doctor.facts.elf import Unreadable
from fi_doctor.facts.files import NOT_PYTHON, decoded
from fi_doctor.inside import excerpt, mirror, ninjalog, subset, survey
from fi_doctor.knowledge import bundles, decode, faults, policies
from fi_doctor.locking import document as locks
from fi_doctor.model import Binary, Fault, Gpu, secrets
from fi_doctor.probing import catalog, deciding, record
from fi_doctor.reports import document as reports
from fi_doctor.reports import explained, explained_markdown, render

_PLACE = pathlib.Path("/dev/shm" if os.access("/dev/shm", os.W_OK) else "/tmp", f"fi-doctor-fuzz-{os.getpid()}")

atexit.register(shutil.rmtree, _PLACE, ignore_errors=True)


class Parser(NamedTuple):
    """One parser. read is given bytes, as they may come."""

    name: str
    read: Callable[[bytes], object]
    seeds: tuple[bytes, ...]
    allowed: tuple[type[BaseException], ...] = ()
    cost: int = 1  # about how many tenths of a millisecond one input takes


def _text(parse: Callable[[str], object]) -> Callable[[bytes], object]:
    return lambda data: parse(data.decode("utf-8", "replace"))


def _file(parse: Callable[[pathlib.Path], object], name: str) -> Callable[[bytes], object]:
    """For what reads a file: it is written anew, in memory, for each input."""

    def read(data: bytes) -> object:
        _PLACE.mkdir(exist_ok=True)
        path = _PLACE / name
        path.write_bytes(data)
        try:
            return parse(path)
        finally:
            path.unlink()

    return read


def _each(*parse: Callable[[str], object]) -> Callable[[bytes], object]:
    return _text(lambda text: [one(text) for one in parse])


def _rendered(data: bytes) -> None:
    """A report of a stranger's, in every format that people and machines read."""
    report = reports.read(data, "report")
    for form in ("console", "markdown", "github", "junit", "sarif", "prometheus", "nfd", "termination-log"):
        render(report, form)


@functools.cache
def _known() -> tuple[object, object]:
    return knowledge.load(), catalog.discover()


def _judged(data: bytes) -> object:
    """A report of a stranger's as --from judges it: every rule, row and setting looks at what it holds."""
    report = reports.read(data, "report")
    kb, specs = _known()
    return pipeline.rejudge(report, report.request, kb=kb, specs=specs)


@functools.cache
def _signs() -> tuple[dict[bytes, list[pathlib.Path]], dict[pathlib.Path, Fault]]:
    """What is looked for in logs, read once: reading it anew for each input costs ten times what a log does."""
    literals = faults.literals()
    paths = {path for found in literals.values() for path in found}
    return literals, {path: next(iter(faults.load({path}))) for path in paths}


_known_settings = functools.cache(faults.settings)


def _logged(data: bytes) -> diagnosing.Explanation:
    """All that is done with a log, but for putting the answer into words."""
    literals, known = _signs()
    with (
        mock.patch.object(faults, "literals", return_value=literals),
        mock.patch.object(faults, "load", lambda paths, *_, **__: tuple(known[path] for path in sorted(set(paths)))),
        mock.patch.object(faults, "settings", _known_settings),
    ):
        return diagnosing.diagnose([Source("log", io.BytesIO(data))])


def _explained(data: bytes) -> object:
    found = _logged(data)
    return explained.render(found), explained_markdown.render(found), secrets.without(found)


def _unpacked(data: bytes) -> None:
    sys.stdin = io.TextIOWrapper(io.BufferedReader(io.BytesIO(data)))  # "-" is stdin
    try:
        with inputs.opened("-", []) as stream:
            while stream.read(1 << 16):
                pass
    finally:
        sys.stdin = sys.__stdin__


def _knowledge(path: pathlib.Path) -> object:
    with bundles.opened(path) as found:
        return found.digest


def _yaml(path: pathlib.Path) -> object:
    errors: list[str] = []
    found = decode.read_yaml(path, path.parent, errors)
    return decode.decode_list(bundles.Fault, found, "place", errors)


def _lock(data: bytes) -> object:
    return locks.to_json(locks.read(data, "lock"))


def _given(path: pathlib.Path) -> object:
    return giving.read((), (str(path),), None, say=lambda _: None)


def _settings(path: pathlib.Path) -> object:
    return giving.read((str(path),), (), None, say=lambda _: None)


def _words(text: str) -> object:
    return giving.read((), (), text, say=lambda _: None), modelling.deployed(
        modelling.words_of(text), tp=None, pp=None, dp=None, ep=False, kv_cache_dtype=None
    )


def _policy(path: pathlib.Path) -> object:
    written = policies.read(path)
    if written.errors:
        raise policies.refusal(written.name, written.errors)
    return policies.wrong_names(written, ("norm.rmsnorm",), ()), policies.resolve(written, "2026-01-01", {})


PARSERS = (
    Parser("nvcc", _each(nvcc.parse_nvcc_version, nvcc.parse_gpu_code, nvcc.parse_dryrun), seeds.NVCC),
    Parser("compilers", _each(
        toolchain.parse_search_list, toolchain.parse_linker_dirs, toolchain.parse_cccl, host_limits.parse_limits,
        host_limits.parse_version, lambda text: toolchain.parse_search_dirs(text, "libraries"),
    ), seeds.COMPILERS),
    Parser("ninja-output", _text(lambda text: (
        list(excerpt.pieces(text.encode())), excerpt.excerpt(text), deciding.deciding_line(text),
    )), seeds.NINJA_OUTPUT),
    Parser("build.ninja", _text(lambda text: (
        builds.difference(text, "/usr/local/cuda", {"FLASHINFER_NVCC": "$cuda_home/bin/nvcc"}), subset.parse(text),
    )), seeds.BUILD_NINJA, (subset.CannotSplit,)),
    Parser("build.ninja-mirrored", _text(
        lambda text: mirror.as_in(text, pathlib.Path("/scratch"), pathlib.Path("/cache"))
    ), seeds.BUILD_NINJA),
    Parser("ninja_log", _text(ninjalog.parse), seeds.NINJA_LOG),
    Parser("ninja_deps", _file(ninja_deps.read, ".ninja_deps"), seeds.NINJA_DEPS),
    Parser("nvml-strings", _text(lambda text: (
        nvml_reasons.kernel_module_version(text), environment.neutralise(text), _gpu(text),
    )), seeds.NVML),
    Parser("metadata", survey._parse, seeds.METADATA),
    Parser("direct_url", _file(lambda path: survey._direct_url(str(path)), "direct_url.json"), seeds.DIRECT_URL),
    Parser("wheel-on-path", _file(lambda path: survey._in_archive(str(path), []), "wheel.whl"), seeds.WHEEL),
    Parser("elf", _file(lambda path: loader.read_elf(str(path)), "lib.so"), seeds.ELF, (), 2),
    Parser("fatbin", _file(lambda path: _binary(str(path)), "ext.so"), seeds.ELF, (Unreadable,), 2),
    Parser("config.json", _file(served_model.read_model, "config.json"), seeds.CONFIG, (DoctorError,), 2),
    Parser("log", _logged, seeds.LOGS, (), 5),
    Parser("log-explained", _explained, seeds.LOGS, (), 200),
    Parser("packed-log", _unpacked, seeds.PACKED, (DoctorError,)),
    Parser("pasted-report", embedded.report, (*seeds.PASTED, *seeds.REPORTS), ()),
    Parser("report", lambda data: reports.read(data, "report"), seeds.REPORTS, (DoctorError,), 10),
    Parser("report-rendered", _rendered, seeds.REPORTS, (DoctorError,), 100),
    Parser("report-judged", _judged, seeds.JUDGED, (DoctorError,), 200),
    Parser("policy", _file(_policy, "fi-doctor.toml"), seeds.POLICIES, (DoctorError,), 2),
    Parser("lock", _lock, seeds.LOCKS, (DoctorError,), 2),
    Parser("knowledge-bundle", _file(_knowledge, "knowledge.zip"), seeds.BUNDLES, (DoctorError,), 20),
    Parser("knowledge-file", _file(_yaml, "fault.yaml"), seeds.KNOWLEDGE, (), 5),
    Parser("env-file", _file(_settings, "server.env"), seeds.ENV_FILES, (DoctorError,), 2),
    Parser("Dockerfile", _file(_given, "Dockerfile"), seeds.DOCKERFILES, (DoctorError,), 5),
    Parser("manifest", _file(_given, "deploy.yaml"), seeds.MANIFESTS, (DoctorError,), 10),
    Parser("vllm-args", _text(_words), seeds.ARGUMENTS, (DoctorError,)),
    Parser("mounts", _each(mounts.parse_mounts, cgroups.parse_mounts), seeds.MOUNTS),
    Parser("cgroups", _each(
        cgroups.parse_memory, cgroups.parse_quota, cgroups.parse_groups, container.container_of_cgroup,
        lambda text: cgroups.parse_stat(text, "inactive_file"),
    ), seeds.CGROUPS),
    Parser("process", _each(
        server.parse_environ, server.parse_limits, lambda text: list(server.loaded(text)),
        lambda text: server.shown_command(text.split("\0")), lambda text: users.user_of_status(text, {}, 1),
        users.overrides_modes,
    ), seeds.PROCESSES),
    Parser("system", _each(
        system.parse_os_release, system.parse_meminfo, lambda text: network.has_default_route(text, text),
        lambda text: loader.parse_cache(text, "x86-64"),
    ), seeds.SYSTEM),
    Parser("acl", permissions.parse_acl, seeds.ACLS),
    Parser("secrets", _text(secrets.hidden), (*seeds.ENVIRON, *seeds.LOGS, b"https://a:b@c/?key=abcdefgh --api-key x")),
    Parser("environment", _text(lambda text: environment.read_environment(server.parse_environ(text))), seeds.ENVIRON),
    Parser("probe", _text(lambda text: catalog.parse(text, "probe.py", "somebody")), seeds.PROBES, (), 3),
    Parser("probe-record", lambda data: record.read(data).place, seeds.RECORDS),
    Parser("torch-source", _each(torch_loading.parse_preloads, registry_text.skeleton), seeds.PYTHON),
    Parser("ray-source", _text(ray.parse), seeds.PYTHON, NOT_PYTHON, 3),
    Parser("builder-source", lambda data: builds.parse_builder(decoded(data)), seeds.PYTHON, NOT_PYTHON, 3),
    Parser("selectors-answer", choices.read, seeds.ANSWERS),
    Parser("start-answer", lambda data: starting.read(data, data.decode(errors="replace"), ""), seeds.ANSWERS),
    Parser("start-log", _text(start_log.read_log), seeds.LOGS),
    Parser("imports", lambda data: imports.parse(data, "it ended"), seeds.IMPORTS),
    Parser("remembered", _file(lambda path: remembered.recall(path, "key", Binary), "memory"), seeds.MEMORIES),
    Parser("version-range", _text(lambda text: ranges.version_in(text, ">=0.5,<0.7")), seeds.VERSIONS),
)  # fmt: skip
BY_NAME = {one.name: one for one in PARSERS}


def _gpu(text: str) -> object:
    """A GPU of any name in what people read."""
    from factory import facts, gpu, gpu_facts

    from fi_doctor.reports.answer import machine

    named: Gpu = gpu(name=text)
    return machine(facts(gpus=gpu_facts(named)), (90,))


def _binary(path: str) -> object:
    return binaries.read_binary(path, "named")
