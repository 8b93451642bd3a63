"""vLLM's configuration classes: each field as a key, "AttentionConfig.backend", and what a flag is made of."""

from __future__ import annotations

import ast
import functools
import json
import re
from dataclasses import dataclass

from fi_doctor.facts.registry_source import Module, Modules, UnknownError
from fi_doctor.facts.registry_types import Allowed, allowed, in_configuration
from fi_doctor.model import Missing
from fi_doctor.model.registry import Parse, Registered, Value

_SKIPPED = ("ClassVar", "InitVar")
_LOWER_DASHES = re.compile(r"""\.lower\(\)\.replace\("-", "_"\)""")
_BY_NAME = r"\b{enum}\[\w+\.upper\(\)\]"
_ALSO = re.compile(r"""\.lower\(\) == "(\w+)":\s+return None""")


@dataclass
class Field:
    """One annotated name of a class body."""

    owner: str  # "KernelConfig"
    name: str
    module: Module
    line: int
    annotation: ast.expr
    value: ast.expr | None
    validator: str  # the source of the validators that see its value first; "" without any

    @functools.cached_property
    def allowed(self) -> Allowed:
        """What its annotation allows."""
        return allowed(self.annotation, self.module)

    @property
    def place(self) -> str:
        """Where it is: "config/kernel.py:305"."""
        return f"{self.module.path}:{self.line}"


class Classes:
    """The classes of the modules in config/ by name; where two have one name, the first."""

    def __init__(self, modules: Modules, unreadable: dict[str, str]) -> None:
        self._where: dict[str, tuple[Module, ast.ClassDef]] = {}
        self._fields: dict[str, dict[str, Field]] = {}
        try:
            # Not glob, which finds nothing where it may not look.
            names = sorted(one.name for one in (modules.root / "config").iterdir() if one.suffix == ".py")
        except OSError as error:
            unreadable["config"] = f"{modules.root / 'config'}: {error.strerror or error}"
            return
        for name in names:
            module = modules.at(f"config/{name}")
            if isinstance(module, Missing):
                unreadable[f"config/{name}"] = module.reason
                continue
            for word, node in module.classes.items():
                self._where.setdefault(word, (module, node))

    def fields(self, owner: str) -> dict[str, Field]:
        """The fields of a class, those of its bases in config/ first."""
        if owner not in self._fields and owner in self._where:
            self._fields[owner] = {}  # of a class that is its own base
            module, node = self._where[owner]
            bases = [self.fields(base.id) for base in node.bases if isinstance(base, ast.Name)]
            found = {name: field for fields in bases for name, field in fields.items()}
            self._fields[owner] = found | fields_of(node, module)
        return self._fields.get(owner, {})

    def keys(self) -> dict[str, Registered]:
        """Every field of every configuration class as a setting of kind key."""
        found: dict[str, Registered] = {}
        for owner, (_, node) in self._where.items():
            if node.decorator_list:
                found.update({f"{owner}.{name}": _key(one) for name, one in self.fields(owner).items()})
        return found


def fields_of(node: ast.ClassDef, module: Module) -> dict[str, Field]:
    """The annotated names of one class body that are settings."""
    validators = _validators(node, module)
    found: dict[str, Field] = {}
    for one in node.body:
        if not (isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name)) or one.target.id[0] == "_":
            continue
        name = one.target.id
        if ast.unparse(one.annotation).startswith(_SKIPPED) or _is_set_by_itself(one.value):
            continue
        seen_first = "\n".join(text for names, text in validators if name in names or "*" in names)
        found[name] = Field(node.name, name, module, one.lineno, one.annotation, one.value, seen_first)
    return found


def default_of(node: ast.expr | None, module: Module) -> Value | Missing:
    """The default that a class body gives a field, also through field(...) and Field(...)."""
    if node is None:
        return Missing(reason="it has no default")
    if isinstance(node, ast.Call) and ast.unparse(node.func).split(".")[-1] in ("field", "Field"):
        return _default_of_call(node, module)
    try:
        return plain(module.value(node))
    except UnknownError:
        return Missing(reason=f"computed: {ast.unparse(node)[:200]}")


def plain(value: object) -> Value | Missing:
    """A value that is read as one that can be kept: mappings as JSON."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, tuple):
        return tuple(str(one) for one in value)
    if isinstance(value, dict):
        try:
            return json.dumps(value)
        except (TypeError, ValueError):
            return Missing(reason="computed: a mapping")
    return Missing(reason=f"computed: {type(value).__name__}")


def with_validator(one: Field, hint: Allowed, form: Parse, choices: tuple[str, ...]) -> tuple[Parse, tuple[str, ...]]:
    """The form with which a text is taken in the end, where a validator of the class sees it before pydantic does."""
    if "enum" in hint.words and hint.enum and re.search(_BY_NAME.format(enum=re.escape(hint.enum)), one.validator):
        return Parse.CHOICE_ANY_CASE, (*choices, *_ALSO.findall(one.validator))
    if not one.validator:
        return form, choices
    if _LOWER_DASHES.search(one.validator) and form is Parse.CHOICE:
        return Parse.CHOICE_DASHES, choices
    return Parse.UNKNOWN, choices


def _key(one: Field) -> Registered:
    hint = one.allowed
    form, choices = with_validator(one, hint, *in_configuration(hint))
    return Registered(
        name=f"{one.owner}.{one.name}",
        kind="key",
        type=ast.unparse(one.annotation),
        parse=form,
        default=default_of(one.value, one.module),
        source=one.place,
        choices=choices,
        optional="None" in hint.words,
    )


def _default_of_call(node: ast.Call, module: Module) -> Value | Missing:
    given = {one.arg: one.value for one in node.keywords}
    first = node.args[0] if node.args else given.get("default")
    if first is not None:
        if isinstance(first, ast.Constant) and first.value is ...:
            return Missing(reason="it has no default")
        return default_of(first, module)
    factory = given.get("default_factory")
    if isinstance(factory, ast.Name) and factory.id in ("list", "tuple", "set"):
        return ()
    if isinstance(factory, ast.Name) and factory.id == "dict":
        return "{}"
    if isinstance(factory, ast.Lambda):
        return default_of(factory.body, module)
    if factory is None:
        return Missing(reason="it has no default")
    return Missing(reason=f"computed: {ast.unparse(factory)[:200]}")


def _is_set_by_itself(value: ast.expr | None) -> bool:
    """Whether a field is none that can be given: field(init=False)."""
    if not isinstance(value, ast.Call):
        return False
    return any(
        one.arg == "init" and isinstance(one.value, ast.Constant) and one.value.value is False for one in value.keywords
    )


def _validators(node: ast.ClassDef, module: Module) -> list[tuple[set[str], str]]:
    """Of each validator that sees a value before pydantic: the fields that it is for, and its source."""
    found = []
    for one in node.body:
        if not isinstance(one, ast.FunctionDef):
            continue
        for mark in one.decorator_list:
            if not (isinstance(mark, ast.Call) and ast.unparse(mark.func).endswith("field_validator")):
                continue
            mode = next((ast.unparse(word.value) for word in mark.keywords if word.arg == "mode"), "")
            text = module.lines(one)
            if mode == "'before'" or (mode == "'wrap'" and "if value is None" not in text):
                names = {word.value for word in mark.args if isinstance(word, ast.Constant)}
                found.append(({str(name) for name in names}, text))
    return found
