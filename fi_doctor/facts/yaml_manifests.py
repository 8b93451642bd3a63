"""Compose files and Kubernetes manifests: what each container is given, with the lines where it stands."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from fi_doctor.errors import DataError
from fi_doctor.facts.encoded import text_of
from fi_doctor.facts.files import read_whole
from fi_doctor.facts.serve_words import served_by
from fi_doctor.model import Given, Variable

if TYPE_CHECKING:
    import yaml

_DEEPEST = 60
_MOST_NODES = 100_000
_LARGEST_BYTES = 1 << 20
_MERGE = "tag:yaml.org,2002:merge"


def read_yaml_manifest(path: Path, text: str) -> tuple[Given, ...]:
    """Every container of every document. Errors: DataError where it is no YAML, or holds no container."""
    import yaml  # noqa: PLC0415 - where such a file is given

    try:
        documents = [
            node
            for node in yaml.compose_all(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
            if node is not None
        ]
        _check(documents)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"line {mark.line + 1}: " if mark else ""
        is_template = "{{" in text
        todo = "helm template . > rendered.yaml; fi-doctor check --manifest rendered.yaml" if is_template else ""
        raise DataError(
            f"{str(path)!r} is no YAML", why=f"{where}{getattr(error, 'problem', None) or error}", todo=todo
        ) from error
    except RecursionError as error:
        raise DataError(f"{str(path)!r} is nested too deeply") from error
    maps = {
        _word(_get(_get(node, "metadata"), "name")): _get(node, "data")
        for node in documents
        if _word(_get(node, "kind")) == "ConfigMap"
    }
    found = [given for node in documents for given in _of_document(path, node, maps)]
    if not found:
        raise DataError(
            f"{str(path)!r} starts no container",
            why="it has neither services, as compose files have, nor containers, as Kubernetes has",
        )
    return tuple(found)


def _of_document(path: Path, node: yaml.Node, maps: dict[str, yaml.Node | None]) -> Iterator[Given]:
    services = _get(node, "services")
    if services is not None and _get(node, "kind") is None:
        for name, service in _items(services):
            yield _of_service(path, name, service)
        return
    what = " ".join(filter(None, (_word(_get(node, "kind")), _word(_get(_get(node, "metadata"), "name")))))
    for container in _containers(node):
        yield _of_container(path, what, container, maps)


def _of_service(path: Path, name: str, service: yaml.Node) -> Given:
    variables: dict[str, Variable] = {}
    unread: dict[str, str] = {}
    for file in _paths(_get(service, "env_file")):
        variables |= _of_env_file(path.parent / file, file, unread)
    variables |= _environment(_get(service, "environment"))
    if (base := _get(service, "extends")) is not None:
        unread["extends"] = f"service {_word(_get(base, 'service')) or _word(base)} is not read into it"
    return _given(path, f"service {name}", service, variables, unread, entry="entrypoint", rest="command")


def _of_container(path: Path, what: str, container: yaml.Node, maps: dict[str, yaml.Node | None]) -> Given:
    variables: dict[str, Variable] = {}
    unread: dict[str, str] = {}
    for source in _listed(_get(container, "envFrom")):
        name = _word(_get(_get(source, "configMapRef"), "name"))
        prefix = _word(_get(source, "prefix"))
        if name in maps:
            pairs = _items(maps[name]) if maps[name] is not None else ()
            variables |= {f"{prefix}{key}": _variable(value) for key, value in pairs}
        else:
            unread["envFrom"] = f"{name or 'a secret'} is not in this file"
    for one in _listed(_get(container, "env")):
        if name := _word(_get(one, "name")):
            line = one.start_mark.line + 1
            value = _get(one, "value")
            variables[name] = _variable(value) if value is not None else Variable(value=None, line=line)
    part = f"{what}, container {_word(_get(container, 'name'))}"
    return _given(path, part, container, variables, unread, entry="command", rest="args")


def _given(  # noqa: PLR0913 - what the two kinds of manifests call otherwise
    path: Path,
    part: str,
    node: yaml.Node,
    variables: dict[str, Variable],
    unread: dict[str, str],
    *,
    entry: str,
    rest: str,
) -> Given:
    first, then, image = _get(node, entry), _get(node, rest), _word(_get(node, "image"))
    found = served_by((*_words(first), *_words(then)), image, has_entry=first is not None)
    at = then if then is not None else first
    line = at.start_mark.line + 1 if at is not None and found.server else 0
    own = {name: Variable(value=value, line=line) for name, value in found.variables.items()}
    return Given(
        file=str(path),
        part=part,
        variables={**variables, **own},
        server=found.server,
        words=found.words,
        line=line,
        image=image,
        unread=unread,
    )


def _environment(node: yaml.Node | None) -> dict[str, Variable]:
    """Of a service: a mapping, or a list of NAME=value; one without a value comes from the host."""
    found = {name: _variable(value) for name, value in _items(node)}
    for one in _listed(node):
        name, equals, value = _word(one).partition("=")
        if name:
            found[name] = Variable(value=value if equals else None, line=one.start_mark.line + 1)
    return found


def _of_env_file(path: Path, name: str, unread: dict[str, str]) -> dict[str, Variable]:
    """A file of a service, each line taken as it is."""
    try:
        lines = text_of(read_whole(path, _LARGEST_BYTES), "replace").splitlines()
    except OSError as error:
        unread[f"env_file {name}"] = error.strerror or str(error)
        return {}
    pairs = (line.partition("=") for line in lines if line.strip() and not line.lstrip().startswith("#"))
    return {key.strip(): Variable(value=value.strip()) for key, equals, value in pairs if equals}


def _paths(node: yaml.Node | None) -> list[str]:
    """Of env_file: a name, a list of names, or of mappings with a path."""
    several = _listed(node) if node is not None and _is_list(node) else [node]
    return [word for one in several if (word := _word(_get(one, "path")) or _word(one))]


def _variable(node: yaml.Node) -> Variable:
    is_null = node.tag.endswith(":null")
    value = None if is_null or not isinstance(node.value, str) or "${" in node.value else node.value
    return Variable(value=value, line=node.start_mark.line + 1)


def _words(node: yaml.Node | None) -> tuple[str, ...]:
    if node is None:
        return ()
    if _is_list(node):
        return tuple(_word(one) for one in node.value)
    try:
        return tuple(shlex.split(_word(node)))
    except ValueError:
        return tuple(_word(node).split())


def _containers(node: yaml.Node | None) -> Iterator[yaml.Node]:
    """Those of pods, wherever a template of one stands."""
    for key, value in _items(node):
        if key in ("containers", "initContainers"):
            yield from _listed(value)
        else:
            yield from _containers(value)
            for one in _listed(value):
                yield from _containers(one)


def _check(documents: list[yaml.Node]) -> None:
    """RecursionError where it is too large to walk through, by aliases or nesting; YAMLError where `<<` merges none."""
    import yaml  # noqa: PLC0415 - as above

    rest = [(node, 0) for node in documents]
    seen = 0
    while rest:
        node, depth = rest.pop()
        seen += 1
        if depth > _DEEPEST or seen > _MOST_NODES:
            raise RecursionError
        for key, value in node.value if _is_mapping(node) else ():
            if key.tag == _MERGE and not all(map(_is_mapping, _merged(value))):
                what = "`<<` merges something else than mappings"
                raise yaml.constructor.ConstructorError(None, None, what, key.start_mark)
        if isinstance(node.value, list):
            parts = (part for one in node.value for part in (one if isinstance(one, tuple) else (one,)))
            rest += [(part, depth + 1) for part in parts]


def _get(node: yaml.Node | None, name: str) -> yaml.Node | None:
    return next((value for key, value in _items(node) if key == name), None)


def _items(node: yaml.Node | None) -> list[tuple[str, yaml.Node]]:
    """The pairs of a mapping, behind them those that `<<` brings and that it has not itself; an earlier one wins."""
    if node is None or not _is_mapping(node):
        return []
    found = [(_word(key), value) for key, value in node.value if key.tag != _MERGE]
    for part in (part for key, value in node.value if key.tag == _MERGE for part in _merged(value)):
        known = {name for name, _ in found}
        found += [(name, value) for name, value in _items(part) if name not in known]
    return found


def _merged(node: yaml.Node) -> list[yaml.Node]:
    """What stands behind `<<`: a mapping, or a list of them."""
    return _listed(node) if _is_list(node) else [node]


def _listed(node: yaml.Node | None) -> list[yaml.Node]:
    return list(node.value) if node is not None and _is_list(node) else []


def _is_mapping(node: yaml.Node) -> bool:
    return getattr(node, "id", "") == "mapping"


def _is_list(node: yaml.Node) -> bool:
    return getattr(node, "id", "") == "sequence"


def _word(node: yaml.Node | None) -> str:
    return node.value if node is not None and getattr(node, "id", "") == "scalar" else ""
