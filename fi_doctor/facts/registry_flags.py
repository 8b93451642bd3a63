"""The engine arguments of vLLM: what engine/arg_utils.py adds to a parser, field by field of the config classes."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterator
from typing import NamedTuple

from msgspec.structs import replace

from fi_doctor.facts.registry_fields import Classes, Field, default_of, with_validator
from fi_doctor.facts.registry_source import Module, Modules, UnknownError
from fi_doctor.facts.registry_types import on_command_line
from fi_doctor.model import Missing
from fi_doctor.model.registry import Parse, Registered

_PATH = "engine/arg_utils.py"
_ACTIONS = "utils/argparse_utils.py"
_SIZES = re.compile(r"contains_type\(type_hints, int\):(.*?)contains_type\(type_hints, float\)", re.DOTALL)
_WORD = re.compile(r'"(\w+)"')
_DASHES = "s.lower().replace('-', '_')"
_TYPES = {"int": Parse.INT, "float": Parse.FLOAT, "str": Parse.TEXT, "human_readable_int": Parse.SIZE}
_JSON = ("json.loads", "parse_type(json.loads)", "optional_type(json.loads)")


class _Taken(NamedTuple):
    """What `get_kwargs(KernelConfig)["moe_backend"]` stands for, with what is written over its parts later."""

    owner: str
    field: str
    changed: dict[str, ast.expr]
    removed: list[ast.expr]
    added: list[ast.expr]


def read_flags(modules: Modules, classes: Classes) -> dict[str, Registered] | Missing:
    """Each flag by its first long name; its negated forms and short names are in it."""
    module = modules.at(_PATH)
    if isinstance(module, Missing):
        return module
    sizes = set(_WORD.findall("".join(_SIZES.findall(module.text))))
    actions = modules.root / _ACTIONS
    opposite = actions.is_file() and "class EnableDisableAction" in actions.read_text("utf-8", "replace")
    reader = FlagReader(module, classes, _PATH, sizes=sizes, opposite=opposite)
    for node in ast.walk(module.tree):
        if isinstance(node, ast.FunctionDef) and node.name == "add_cli_args":
            reader.run(node.body)
    if not reader.found:
        return Missing(reason=f"{modules.root / _PATH} adds no options that can be read")
    return reader.found


class FlagReader:
    """Follows the statements of add_cli_args."""

    def __init__(
        self,
        module: Module,
        classes: Classes | None,
        path: str,
        *,
        sizes: Collection[str] = (),
        opposite: bool = False,
    ) -> None:
        """classes: whose fields get_kwargs gives. sizes: fields of type int that take 2k. opposite: see below."""
        self.found: dict[str, Registered] = {}
        self._module = module
        self._classes = classes
        self._path = path
        self._sizes = sizes
        self._opposite = opposite  # whether --enable-x has --disable-x beside --no-enable-x
        self._of_class: dict[str, dict[str, _Taken]] = {}  # variable -> field -> what it stands for
        self._of_field: dict[str, _Taken] = {}

    def run(self, body: list[ast.stmt]) -> None:
        """Follow statements; both branches of a condition count."""
        for node in body:
            match node:
                case ast.Assign(targets=[ast.Name(id=name)], value=value):
                    self._assign(name, value)
                case ast.Assign(targets=[ast.Subscript(value=inner, slice=ast.Constant(value=str(key)))], value=value):
                    if taken := self._taken(inner):
                        taken.changed[key] = value
                case ast.Expr(value=ast.Call() as call):
                    self._call(call)
                case ast.If(body=inner, orelse=other):
                    self.run(inner)
                    self.run(other)

    def _assign(self, name: str, value: ast.expr) -> None:
        match value:
            case ast.Call(func=ast.Name(id="get_kwargs"), args=[ast.Name(id=owner), *_]):
                fields = self._classes.fields(owner) if self._classes else ()
                self._of_class[name] = {field: _Taken(owner, field, {}, [], []) for field in fields}
            case ast.Subscript():
                if taken := self._taken(value):
                    self._of_field[name] = taken

    def _taken(self, node: ast.expr) -> _Taken | None:
        match node:
            case ast.Name(id=name):
                return self._of_field.get(name)
            case ast.Subscript(value=ast.Name(id=name), slice=ast.Constant(value=str(key))):
                return self._of_class.get(name, {}).get(key)
        return None

    def _call(self, call: ast.Call) -> None:
        match call:
            case ast.Call(
                func=ast.Attribute(value=ast.Subscript(value=inner, slice=ast.Constant(value="choices")), attr=verb),
                args=[one],
            ):
                if taken := self._taken(inner):
                    {"remove": taken.removed, "append": taken.added}.get(verb, []).append(one)
            case ast.Call(func=ast.Attribute(attr="add_argument")):
                self._add(call)

    def _add(self, call: ast.Call) -> None:
        names = [one.value for one in call.args if isinstance(one, ast.Constant) and isinstance(one.value, str)]
        long = next((name for name in names if name.startswith("--")), "")
        if not long:
            return
        given: dict[str, ast.expr] = {}
        taken, is_whole = None, True
        for key, value in _pairs(call):
            if key:
                given[key] = value
            else:
                taken, is_whole = self._taken(value) or taken, False
        field = self._classes.fields(taken.owner).get(taken.field) if taken and self._classes else None
        flag = Registered(
            name=long,
            kind="flag",
            type="",
            parse=Parse.UNKNOWN,
            default=None,
            source=f"{self._path}:{call.args[0].lineno}",
            aliases=tuple(name for name in names if name != long),
        )
        if taken is not None and field is not None:
            flag = self._changed(self._of(flag, field), {**taken.changed, **given}, taken)
        elif is_whole:
            flag = self._changed(replace(flag, parse=Parse.TEXT), given, None)
        else:  # made of a class that could not be read
            flag = replace(flag, default=Missing(reason="what it is made of could not be read"))
        self.found.setdefault(long, flag)

    def _of(self, flag: Registered, field: Field) -> Registered:
        """The flag as the field of a config class makes it."""
        hint = field.allowed
        form, choices, several = on_command_line(hint, sizes=field.name in self._sizes)
        if form is Parse.UNKNOWN:
            form, choices = with_validator(field, hint, form, choices)
        return replace(
            flag,
            type=ast.unparse(field.annotation),
            parse=form,
            choices=("auto",) if form is Parse.SIZE and field.name == "max_model_len" else choices,
            several=several,
            default=default_of(field.value, field.module),
            negations=self._negations((flag.name, *flag.aliases)) if form is Parse.FLAG else (),
            optional="None" in hint.words and form is not Parse.FLAG,
            sets=f"{field.owner}.{field.name}",
        )

    def _changed(self, flag: Registered, given: dict[str, ast.expr], taken: _Taken | None) -> Registered:
        """The flag with what the call says by itself."""
        if "default" in given:
            flag = replace(flag, default=default_of(given["default"], self._module))
        if "action" in given:
            flag = self._with_action(flag, ast.unparse(given["action"]), given)
        if "choices" in given:
            choices = self._choices(given["choices"])
            flag = replace(flag, parse=Parse.CHOICE if choices else Parse.UNKNOWN, choices=choices)
        if "type" in given:
            flag = typed(flag, given["type"])
        if "dest" in given and not flag.sets and self._classes is None:  # a key of the only class that there is
            match given["dest"]:
                case ast.Constant(value=str(dest)):
                    flag = replace(flag, sets=f"ServerArgs.{dest}")
        if "nargs" in given:
            several = ast.unparse(given["nargs"]) in ("'+'", "'*'")
            flag = replace(flag, several=several, parse=flag.parse if several else Parse.UNKNOWN)
        for nodes, removed in ((taken.removed, True), (taken.added, False)) if taken else ():
            for node in nodes:
                flag = self._with_choice(flag, node, removed=removed)
        return flag

    def _with_choice(self, flag: Registered, node: ast.expr, *, removed: bool) -> Registered:
        try:
            word = str(self._module.value(node))
        except UnknownError:
            return replace(flag, parse=Parse.UNKNOWN)
        rest = tuple(one for one in flag.choices if one != word)
        return replace(flag, choices=rest if removed else (*rest, word))

    def _with_action(self, flag: Registered, action: str, given: dict[str, ast.expr]) -> Registered:
        default = flag.default if "default" in given else False
        if action.endswith("BooleanOptionalAction"):
            default = flag.default if "default" in given else None
            negations = self._negations((flag.name, *flag.aliases))
            return replace(flag, parse=Parse.FLAG, type="bool", default=default, negations=negations)
        if action in ("'store_true'", "'store_false'"):
            default = (action == "'store_false'") if "default" not in given else flag.default
            return replace(flag, parse=Parse.FLAG, type="bool", default=default)
        return replace(flag, parse=Parse.UNKNOWN, through=f"action={action}")

    def _negations(self, names: tuple[str, ...]) -> tuple[str, ...]:
        long = [name for name in names if name.startswith("--")]
        found = [f"--no-{name[2:]}" for name in long]
        for name in long if self._opposite else ():
            for this, other in (("--enable-", "--disable-"), ("--disable-", "--enable-")):
                if name.startswith(this):
                    found.append(other + name.removeprefix(this))
        return tuple(found)

    def _choices(self, node: ast.expr) -> tuple[str, ...]:
        try:
            found = self._module.value(node)
        except UnknownError:
            return ()
        return tuple(str(one) for one in found) if isinstance(found, tuple) else ()


def typed(flag: Registered, node: ast.expr) -> Registered:
    """The flag with the function that its text is given to."""
    text = ast.unparse(node)
    if (
        isinstance(node, ast.Lambda)
        and ast.unparse(node.body) == _DASHES
        and flag.parse in (Parse.CHOICE, Parse.UNKNOWN)
    ):
        return replace(flag, parse=Parse.CHOICE_DASHES)
    if text in _TYPES and flag.parse is not Parse.CHOICE:
        return replace(flag, parse=_TYPES[text], type=flag.type or text, choices=())
    if text in _JSON:
        return replace(flag, parse=Parse.JSON, choices=())
    return flag if text in _TYPES else replace(flag, parse=Parse.UNKNOWN, through=text[:200])


def _pairs(call: ast.Call) -> Iterator[tuple[str | None, ast.expr]]:
    """The keywords of a call, and the parts of a dict that is given with **."""
    for one in call.keywords:
        if one.arg is None and isinstance(one.value, ast.Dict):
            for key, value in zip(one.value.keys, one.value.values, strict=True):
                yield (str(key.value) if isinstance(key, ast.Constant) else None), value
        else:
            yield one.arg, one.value
