"""The callable names of one installed FlashInfer, found in its source; nothing is imported."""

from __future__ import annotations

import re
from pathlib import Path

from fi_doctor.facts.calls.definitions import EMPTY, HEADER, Callee, ClassText, read_function
from fi_doctor.facts.calls.texts import Text
from fi_doctor.facts.symbols import QUICK, Source, Symbols
from fi_doctor.model import Missing

_MOST_BASES = 6
_ALIAS = re.compile(r"(\w+)\s*(?::[^=]+)?=\s*([A-Za-z_][\w.]*)\s*$")
_DUNDER = re.compile(r"__\w+__")
_HANDS_ON = re.compile(r"\w+\((?:self, ?)?\*args, ?\*\*kwargs\)")
_WORD = re.compile(r"[A-Za-z_][\w.]*")
_ELSEWHERE = frozenset(
    [
        "torch",
        "Tensor",
        "np",
        "numpy",
        "Tuple",
        "tuple",
        "Optional",
        "Union",
        "List",
        "list",
        "Dict",
        "dict",
        "None",
        "int",
        "float",
        "bool",
        "str",
        "bytes",
        "Callable",
        "Literal",
        "Any",
        "Sequence",
        "Iterator",
        "Generator",
        "contextlib",
        "True",
        "False",
    ]
)


class Callees:
    """Each name is read once; whole: as for Symbols."""

    def __init__(self, root: Path, label: str, *, whole: int = QUICK) -> None:
        self.label = label  # "flashinfer 0.7.2.post1", for reasons
        self._root = root
        self._symbols = Symbols(root, label, whole=whole)
        self._found: dict[str, Callee | Missing] = {}
        self._texts: dict[str, Text | Missing] = {}
        self._classes: dict[str, ClassText | None] = {}

    def find(self, dotted: str) -> Callee | Missing:
        """What the name is, a member of a class too; Missing with `absent` when FlashInfer surely has none of it."""
        if dotted not in self._found:
            self._found[dotted] = Missing(reason=f"{dotted} is an alias of itself")
            self._found[dotted] = self._find(dotted)
        return self._found[dotted]

    def given(self, function: Callee) -> tuple[str, Callee] | Missing | None:
        """The class of FlashInfer whose instance a function says that it gives; None when it is another package's."""
        module = self._module(function.place)
        words = [word for word in _WORD.findall(function.gives) if word.partition(".")[0] not in _ELSEWHERE]
        if function.gives and not words:
            return None
        for word in words:
            found = self.find(f"{module}.{word}")
            if isinstance(found, Callee) and found.kind == "class":
                return f"{module}.{word}", found
        return Missing(reason=f"{function.place} does not say what it gives")

    def _find(self, dotted: str) -> Callee | Missing:
        if dotted == self._root.name:
            return Callee("__init__.py:1", "module")
        owner, _, name = dotted.rpartition(".")
        if _DUNDER.fullmatch(name) and name != "__call__":
            holder = self.find(owner)
            return (
                holder if isinstance(holder, Missing) else Callee(holder.place, "value", unread=f"{name} is Python's")
            )
        holder = self.find(owner) if owner else Missing(reason=f"{dotted} is no name of FlashInfer", absent=True)
        if isinstance(holder, Callee) and holder.kind == "class":
            return self._member(holder.place, name)
        place = self._symbols.where(dotted)  # a module too that shares its name with a function
        if isinstance(place, str):
            return self._at(place, name)
        if isinstance(holder, Missing):
            return holder
        if holder.kind == "module":
            return place
        return Callee(holder.place, "unknown", unread="what it is a member of is not known")

    def _at(self, place: str, name: str) -> Callee | Missing:
        text = self._text(place)
        if isinstance(text, Missing):
            return text
        line = _number(place)
        header = HEADER.match(text.line(line))
        if header is None:
            return self._other(place, text.line(line), name)
        if header[1] == "class":
            return self._class(place)
        return self._decorated(read_function(place, text, line, is_method=False))

    def _other(self, place: str, line: str, name: str) -> Callee:
        """A module, another name for something, or a value."""
        path = Path(place.rpartition(":")[0])
        if path.stem == name or (path.name == "__init__.py" and path.parent.name == name):
            return Callee(place, "module")
        alias = _ALIAS.match(line)
        if alias is not None and alias[1] == name:
            meant = self.find(f"{self._module(place)}.{alias[2]}")
            if isinstance(meant, Callee):
                return meant
        return Callee(place, "value", unread=f"{place} does not say what {name} takes")

    def _decorated(self, found: Callee) -> Callee:
        """The callee; without its signature where a decorator is not FlashInfer's own that hands all arguments on."""
        if not found.decorator or found.signature is None:
            return found
        place = self._symbols.where(f"{self._module(found.place)}.{found.decorator}")
        text = self._text(place) if isinstance(place, str) else place
        if isinstance(text, Text) and isinstance(place, str):
            block = text.block(_number(place))
            if "wraps(" in block and _HANDS_ON.search(block):
                return found
        return found._replace(signature=None, unread=f"@{found.decorator} may change what it takes")

    def _class(self, place: str) -> Callee:
        block = self._block(place)
        if block is None:
            return Callee(place, "class", unread=f"{place} cannot be read as a class")
        if block.has_metaclass or block.is_enum:
            return Callee(place, "class", unread=f"{block.name} is made by its metaclass")
        made = self._inherited(place, "__init__")
        if isinstance(made, Missing) and made.absent and block.is_fielded:
            return Callee(place, "class", block.fields())
        if isinstance(made, Missing) and made.absent:
            made = self._inherited(place, "__new__")
        if isinstance(made, Missing):
            return Callee(place, "class", EMPTY) if made.absent else Callee(place, "class", unread=made.reason)
        return Callee(place, "class", made.signature, unread=made.unread)

    def _member(self, place: str, name: str) -> Callee | Missing:
        found = self._inherited(place, name)
        if isinstance(found, Missing) and not found.absent:
            return Callee(place, "value", unread=found.reason)
        return found

    def _inherited(self, place: str, name: str, hops: int = 0) -> Callee | Missing:
        """The class's own member, else the nearest of what it inherits; absent only where all of that was read."""
        block = self._block(place)
        if block is None or hops > _MOST_BASES:
            return Missing(reason=f"{place} cannot be read as a class")
        own = block.member(name)
        if own is not None:
            return self._decorated(own)
        unread = ""
        for base in block.bases:
            meant = self.find(f"{self._module(place)}.{base}")
            if isinstance(meant, Missing) or meant.kind != "class":
                unread = unread or f"{base}, which {block.name} inherits, is not FlashInfer's"
                continue
            found = self._inherited(meant.place, name, hops + 1)
            if isinstance(found, Callee) or not found.absent:
                return found
        if unread and not block.is_enum and not block.is_fielded:
            return Missing(reason=unread)
        return Missing(reason=f"{self.label} has no {block.name}.{name} ({place} read)", absent=True)

    def _block(self, place: str) -> ClassText | None:
        if place not in self._classes:
            text = self._text(place)
            block = ClassText.read(_file(place), text, _number(place)) if isinstance(text, Text) else None
            self._classes[place] = block
        return self._classes[place]

    def _text(self, place: str) -> Text | Missing:
        path = _file(place)
        if path not in self._texts:
            source = self._symbols.source(self._root / path)
            self._texts[path] = Text(source) if isinstance(source, Source) else source
        return self._texts[path]

    def _module(self, place: str) -> str:
        return ".".join((self._root.name, *Path(_file(place)).with_suffix("").parts)).removesuffix(".__init__")


def _file(place: str) -> str:
    return place.rpartition(":")[0]


def _number(place: str) -> int:
    return int(place.rpartition(":")[2])
