"""The classes and functions of vLLM's own files: each holds and gives its own, whatever others call theirs."""

from __future__ import annotations

from collections.abc import Iterator

from fi_doctor.facts.calls.values import NOTHING, UNKNOWN, Value, Values


class Function:
    """One function or method; a second definition of it in the same class or scope is another one."""

    def __init__(self, name: str, *, is_property: bool = False, drops: str = "") -> None:
        self.name = name
        self.gives: Values = NOTHING
        self.is_property = is_property
        self.drops = drops  # "self" or "cls", of a method: its first argument, which a call does not write
        self._passed: dict[int, Values] = {}  # the number of an argument -> what its file passes there

    def take(self, number: int, values: Values, *, is_bound: bool) -> bool:
        """Note what a call passes by position; False where it has not to be known: none was ever FlashInfer's.

        is_bound: called by an instance, and not as `Class.method(instance, ...)`.
        """
        number += self.drops == "cls" or (self.drops == "self" and is_bound)
        if number not in self._passed and not any(value.dotted for value in values):
            return False
        self._passed[number] = self._passed.get(number, NOTHING) | values
        return True

    def is_giving(self) -> bool:
        """Whether it may give back something of FlashInfer."""
        return any(value.dotted for value in self.gives)

    def passed(self, number: int) -> Values:
        """What its file passes for the argument of that number, self among them."""
        return self._passed.get(number, UNKNOWN)


class Class:
    """One class: its own attributes, with what it inherits, as far as that was read, and what inherits it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.attributes: dict[str, Values] = {}
        self.methods: dict[str, set[Function]] = {}  # several where each stands in a branch
        self._bases: list[Class] = []
        self._heirs: list[Class] = []

    def inherit(self, base: Class) -> None:
        """Note one of its bases."""
        if base not in self._bases and self not in base.line():
            self._bases.append(base)
            base._heirs.append(self)

    def find(self, name: str) -> Values | None:
        """What a member of an instance may be, which may be an instance of an heir; None where none binds the name."""
        found: set[Value] = set()
        is_bound = False
        for kind in self.kinds():
            for one in kind.line():
                is_bound |= name in one.attributes or name in one.methods
                found |= one.attributes.get(name, NOTHING)
                for method in one.methods.get(name, ()):
                    found |= method.gives if method.is_property else {Value("", owner=method, made=True)}
                if name in one.methods:
                    break  # it hides what the bases have of that name
        return frozenset(found) if is_bound else None

    def line(self) -> Iterator[Class]:
        """Itself, then what it inherits."""
        yield self
        for base in self._bases:
            yield from base.line()

    def words(self) -> Iterator[str]:
        """The members, inherited ones too, that may be FlashInfer's or give what is."""
        for one in self.line():
            yield from (name for name, values in one.attributes.items() if any(value.dotted for value in values))
            yield from (name for name, several in one.methods.items() if any(method.is_giving() for method in several))

    def kinds(self) -> Iterator[Class]:
        """Itself, then what inherits it: what an instance of it may be."""
        yield self
        for heir in self._heirs:
            yield from heir.kinds()


def instance(value: Value) -> Value:
    """What is declared to be of this class."""
    if isinstance(value.owner, Class):
        return value._replace(made=True)
    return value.called()


def called(value: Value) -> Values:
    """What a call of it gives."""
    match value.owner:
        case Function():
            return value.owner.gives or UNKNOWN
        case Class() if value.made:
            methods = [function for function, _ in takers(value)]
            return frozenset(one for method in methods for one in method.gives) or UNKNOWN
    return frozenset({instance(value)})


def takers(value: Value) -> Iterator[tuple[Function, bool]]:
    """The functions of vLLM that a call of it enters, and whether they are bound to an instance."""
    match value.owner:
        case Function():
            yield value.owner, value.made
        case Class():
            found = value.owner.find("__call__" if value.made else "__init__") or NOTHING
            yield from ((one.owner, True) for one in found if isinstance(one.owner, Function))
