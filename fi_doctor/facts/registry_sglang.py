"""SGLang's server arguments and the variables of its environ.py, in the three shapes that 0.5.x has had."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from msgspec.structs import replace

from fi_doctor.facts.files import is_folder, matching
from fi_doctor.facts.registry_fields import default_of
from fi_doctor.facts.registry_flags import FlagReader, typed
from fi_doctor.facts.registry_source import Module, Modules, UnknownError
from fi_doctor.facts.registry_types import Allowed, allowed
from fi_doctor.model import Missing
from fi_doctor.model.registry import Parse, Registered

_ARGUMENTS = "srt/server_args.py"
_FIELDS = "srt/arg_groups/fields"
_ENVIRON = "srt/environ.py"
_ANNOTATED = ("A", "Annotated")
# The classes of environ.py. A bool in none of these words is warned of, and counts as unset.
_ON, _OFF = ("true", "1", "yes", "y"), ("false", "0", "no", "n")
_ENVS = {
    "EnvBool": Parse.BOOL_WORDS,
    "EnvInt": Parse.INT,
    "EnvFloat": Parse.FLOAT,
    "EnvStr": Parse.TEXT,
    "EnvTuple": Parse.LIST,
    "EnvJSON": Parse.UNKNOWN,  # the name of a file, too
}
_SCALARS = {"int": Parse.INT, "float": Parse.FLOAT, "str": Parse.TEXT}


def read_sglang_flags(modules: Modules) -> dict[str, Registered] | Missing:
    """The arguments of server_args.py: those that it adds by itself, and those that fields of classes stand for."""
    module = modules.at(_ARGUMENTS)
    if isinstance(module, Missing):
        return module
    found: dict[str, Registered] = {}
    for place in (module, *_field_modules(modules)):
        for node in place.classes.values():
            found.update({flag.name: flag for flag in _of_class(node, place)})
    reader = FlagReader(module, None, _ARGUMENTS)
    for one in ast.walk(module.tree):
        if isinstance(one, ast.FunctionDef) and one.name == "add_cli_args":
            reader.run(one.body)
    found = {**found, **reader.found}
    return found or Missing(reason=f"{modules.root / _ARGUMENTS} adds no options that can be read")


def read_sglang_envs(modules: Modules) -> dict[str, Registered]:
    """The variables of environ.py; none in releases before it had that file."""
    module = modules.at(_ENVIRON)
    if isinstance(module, Missing) or "Envs" not in module.classes:
        return {}
    found: dict[str, Registered] = {}
    for node in module.classes["Envs"].body:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Call(func=ast.Name(id=kind)) as call):
                found[name] = _env(name, kind.removesuffix("WithAlias"), call, module)
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.Call(func=ast.Name(id=kind)) as call):
                found[name] = _env(name, kind.removesuffix("WithAlias"), call, module)
    return found


def _env(name: str, kind: str, call: ast.Call, module: Module) -> Registered:
    given = {one.arg: one.value for one in call.keywords}
    default = call.args[0] if call.args else given.get("default")
    other = given.get("deprecated_name")
    form = _ENVS.get(kind, Parse.UNKNOWN)
    return Registered(
        name=name,
        kind="env",
        type=kind,
        parse=form,
        default=default_of(default, module),
        source=f"{_ENVIRON}:{call.lineno}",
        choices=_ON if form is Parse.BOOL_WORDS else (),
        off=_OFF if form is Parse.BOOL_WORDS else (),
        aliases=(str(other.value),) if isinstance(other, ast.Constant) else (),
    )


def _field_modules(modules: Modules) -> Iterator[Module]:
    folder = modules.root / _FIELDS
    for path in matching(folder, "*.py") if is_folder(folder) else ():
        module = modules.at(f"{_FIELDS}/{path.name}")
        if isinstance(module, Module):
            yield module


def _of_class(node: ast.ClassDef, module: Module) -> Iterator[Registered]:
    """The flags of fields that are annotated with A[type, "help"] or A[type, Arg(...)]."""
    for one in node.body:
        match one:
            case ast.AnnAssign(
                target=ast.Name(id=name),
                annotation=ast.Subscript(value=ast.Name(id=mark), slice=ast.Tuple(elts=[kind, *notes])),
            ) if mark in _ANNOTATED:
                argument = _argument(notes)
                if argument is not None and not _is_true(argument.get("no_cli")):
                    yield _flag(name, kind, argument, (one, module))


def _argument(notes: list[ast.expr]) -> dict[str, ast.expr] | None:
    """The keywords of Arg(...), none for a help text; None where the field is no argument."""
    for note in notes:
        match note:
            case ast.Call(func=ast.Name(id="Arg"), keywords=keywords):
                return {one.arg: one.value for one in keywords if one.arg}
            case ast.Constant(value=str()) | ast.JoinedStr() | ast.BinOp():
                return {}
    return None


def _flag(name: str, kind: ast.expr, argument: dict[str, ast.expr], at: tuple[ast.AnnAssign, Module]) -> Registered:
    node, module = at
    hint = allowed(kind, module)
    form, choices, several = _form(hint)
    flag = Registered(
        name=_text(argument.get("cli_name"), module) or f"--{name.replace('_', '-')}",
        kind="flag",
        type=ast.unparse(kind),
        parse=form,
        default=default_of(node.value, module),
        source=f"{module.path}:{node.lineno}",
        choices=choices,
        several=several,
        sets=f"ServerArgs.{name}",
        aliases=_texts(argument.get("aliases"), module),
    )
    if "choices" in argument:
        words = _texts(argument["choices"], module)
        flag = replace(flag, parse=Parse.CHOICE if words else Parse.UNKNOWN, choices=words)
    if "type_parser" in argument:
        flag = typed(flag, argument["type_parser"])
    if "nargs" in argument:
        many = _text(argument["nargs"], module) in ("+", "*")
        flag = replace(flag, several=many, parse=flag.parse if many else Parse.UNKNOWN)
    if "action" in argument:
        action = ast.unparse(argument["action"])
        if not action.endswith("BooleanOptionalAction"):
            return replace(flag, parse=Parse.UNKNOWN, through=f"action={action}")
        flag = replace(flag, parse=Parse.FLAG, negations=(f"--no-{flag.name.removeprefix('--')}",))
    return flag


def _form(hint: Allowed) -> tuple[Parse, tuple[str, ...], bool]:
    """As add_cli_args_from_dataclass has it."""
    words = hint.words - {"None"}
    if words == {"literal"}:
        return Parse.CHOICE, hint.choices, False
    if words == {"list"}:
        form, choices, _ = _form(hint.item or Allowed({"str"}))
        return form, choices, True
    if words == {"bool"}:
        return Parse.FLAG, (), False
    word = next(iter(words)) if len(words) == 1 else ""
    return _SCALARS.get(word, Parse.TEXT), (), False


def _is_true(node: ast.expr | None) -> bool:
    return isinstance(node, ast.Constant) and node.value is True


def _text(node: ast.expr | None, module: Module) -> str:
    try:
        found = module.value(node) if node is not None else ""
    except UnknownError:
        return ""
    return found if isinstance(found, str) else ""


def _texts(node: ast.expr | None, module: Module) -> tuple[str, ...]:
    try:
        found = module.value(node) if node is not None else ()
    except UnknownError:
        return ()
    return tuple(str(one) for one in found) if isinstance(found, tuple) else ()
