"""Seeded faults: a kernel that is right but for at most one element of a hundred of one call.

`fake_flashinfer` beside it holds for each kernel a right stand-in, at the kernel's precision, and its faults. Here one
call is made twice, right and with a fault, and of the faulty outputs only a short run of elements is taken; all other
calls are right. So a fault that would spoil every element is as small as a lost tail, and the probe's own check has to
see it all the same. The call is drawn from those in which the fault does half as much as anywhere on average, the place
from the tenth of the elements that differ most: elsewhere it may do less than rounding does (a lost expert of little
weight).

How often a sampler draws each token is right or wrong only as a whole. Its light faults act in every call and as they
are, and move the statistic that the probe looks at to at most 4 x its limit.
"""

import collections
import contextlib
import functools
import importlib
import random
from typing import NamedTuple
from unittest import mock

import loading
import torch

MOST = 100  # one element of so many
MOST_ALIKE = 3  # calls with arguments of the same shapes in which faults are looked at before one is drawn
EVERY = -1  # in place of the number of a call


class Kernel(NamedTuple):
    """A probe's variant, what of the stand-in it calls, and the faults that change what the call gives."""

    probe: str
    variant: str
    entries: str  # each module:function or module:Class.method, without the "flashinfer." before all of them
    smaller: dict
    faults: str
    light: str = ""
    places: tuple = ()  # "decode <- _paged:Class": where FlashInfer has what the stand-in keeps in a module of its own


class Seen(NamedTuple):
    """What became of one seeded fault."""

    caught: str  # what the check said; "" when it saw nothing
    tolerances: float | None  # the largest error that the check saw, in tolerances; None: it allows none, or not finite
    touched: int
    elements: int  # of all outputs of the run

    def is_small(self):
        """Whether it is what a seeded fault may be."""
        return self.touched > 0 and (self.touched <= self.elements / MOST or (self.tolerances or MOST) <= 4)


def clean(kernel, seed=0):
    """What a run without a fault measures, on inputs of this seed; AssertionError is a false alarm."""
    with _seeds_shifted(seed):
        return _run(kernel)


def seeded(kernel, seed=0):
    """What became of each fault of the kernel, in a run of its own."""
    faults = importlib.import_module("flashinfer.faults")
    scout = _Calls(faults, kernel.faults.split())
    _run(kernel, scout)
    seen = {fault: _seed(kernel, _Calls(faults, [fault], EVERY)) for fault in kernel.light.split()}
    assert all(one.touched for one in seen.values()), f"{kernel.probe} {kernel.variant}: a light fault changes nothing"
    for fault, harm in scout.harm.items():
        assert harm, f"{kernel.probe} {kernel.variant}: {fault} changes nothing"
        draw = random.Random(f"{kernel.probe} {fault} {seed}")
        at = draw.choice([at for at, size in harm.items() if size >= max(harm.values()) / 2])
        seen[fault] = _seed(kernel, _Calls(faults, [fault], at, draw))._replace(elements=scout.elements)
    return seen


def _seed(kernel, calls):
    caught, tolerances = "", None
    try:
        _run(kernel, calls)
    except AssertionError as error:
        caught, tolerances = str(error) or "an assertion", _tolerances(error.__traceback__)
    return Seen(caught, tolerances, calls.touched, calls.elements)


def _run(kernel, calls=None):
    """One run of the probe, as a module of its own and on sizes for a CPU, with every call of an entry in `calls`."""
    with contextlib.ExitStack() as stack:
        for place in kernel.places:
            stand_in, name = _found(place)
            to = place.rpartition(" <- ")[0]
            module = importlib.import_module(f"flashinfer.{to}" if to else "flashinfer")
            stack.enter_context(mock.patch.object(module, name, getattr(stand_in, name), create=True))
        for entry in kernel.entries.split() if calls else ():
            owner, name = _found(entry)
            stack.enter_context(mock.patch.object(owner, name, calls.through(getattr(owner, name))))
        return loading.load(kernel.probe, **kernel.smaller).run(kernel.variant)


def _found(path):
    """What holds the last name of "module:Class.method", and that name; before "<-" may be where it goes."""
    module, _, names = path.rpartition(" <- ")[2].partition(":")
    owner = importlib.import_module(f"flashinfer.{module}")
    *parents, name = names.split(".")
    for parent in parents:
        owner = getattr(owner, parent)
    return owner, name


class _Calls:
    """Makes calls twice, right and with a fault, and gives the one with the number `at` its fault; None: looks only."""

    def __init__(self, faults, names, at=None, draw=None):
        self.faults, self.at, self.draw = faults, at, draw
        self.number = self.touched = self.elements = 0
        self.alike = collections.Counter()
        self.harm = {
            name: {} for name in names
        }  # of each fault: number of a call that differs, and by how much on average

    def through(self, function):
        return lambda *args, **kwargs: self._call(function, args, kwargs)

    def _call(self, function, args, kwargs):
        number, self.number = self.number, self.number + 1
        if self.at not in {None, EVERY, number}:
            return function(*args, **kwargs)
        given, generators = _all(torch.Tensor, (args, kwargs)), _all(torch.Generator, (args, kwargs))
        given = [one for one in given if 0 not in one.stride() or one.numel() < 2]  # nothing is written to others
        before, states = [one.clone() for one in given], [one.get_state() for one in generators]
        wrong, shapes = {}, repr([_shape(one) for one in (*args, *kwargs.items())])
        self.alike[shapes] += 1
        for fault in self.harm if self.at is not None or self.alike[shapes] <= MOST_ALIKE else ():
            self.faults.ACTIVE = fault
            try:
                with mock.patch.multiple(torch, **LEFT_OVER):
                    wrong[fault] = [one.clone() for one in (*given, *_all(torch.Tensor, function(*args, **kwargs)))]
            finally:
                self.faults.ACTIVE = ""
            for one, kept in zip((*given, *generators), (*before, *states), strict=True):
                one.copy_(kept) if isinstance(one, torch.Tensor) else one.set_state(kept)
        result = function(*args, **kwargs)
        right = [*given, *_all(torch.Tensor, result)]
        written = [_differs(good, old) for good, old in zip(right, before, strict=False)]
        outputs = sum(int(one.sum()) for one in written) or sum(one.numel() for one in right[len(before) :])
        self.elements += outputs
        for fault, tensors in wrong.items():
            self._compare((fault, number), right, tensors, outputs)
        return result

    def _compare(self, what, right, wrong, outputs):
        sizes = [_size(good, bad) for good, bad in zip(right, wrong, strict=True)]
        largest = max(float(size.max()) for size in sizes)
        fault, number = what
        if largest > 0:
            self.harm[fault][number] = sum(float(size.sum()) for size in sizes) / outputs
        if self.at == EVERY:
            for good, bad in zip(right, wrong, strict=True):
                self.touched += int(_differs(good, bad).sum())
                good.copy_(bad)
        elif self.at is not None and largest > 0:
            which = self.draw.choice([place for place, size in enumerate(sizes) if size.max() == largest])
            self._spoil(right[which], wrong[which], sizes[which], max(1, outputs // MOST))

    def _spoil(self, right, wrong, size, most):
        """A run of elements around one of the tenth that differ most, or one that is no number where there are some."""
        good, bad = right.flatten(), wrong.flatten()
        places = size.nonzero().flatten()
        size = size[places]
        least = size.max() if size.isinf().any() else size.sort().values[len(size) * 9 // 10]
        places = places[size >= least]
        middle = int(places[self.draw.randrange(len(places))])
        begin = max(0, min(middle - most // 2, good.numel() - most))
        taken = good.clone()
        taken[begin : begin + most] = bad[begin : begin + most]
        self.touched = int(_differs(good, taken).sum())
        right.copy_(taken.view(right.shape))


def _left_over(empty, *shape, **options):
    """Memory as a kernel gets it, with the same in it at each run: what the last call left may be what is right."""
    return empty(*shape, **options).fill_(3)


LEFT_OVER = {name: functools.partial(_left_over, getattr(torch, name)) for name in ("empty", "empty_like")}


def _size(good, bad):
    """How far each element is off, flat; 0 where it is not, infinite for NaN. One 0 for all where nothing differs."""
    if torch.equal(*_as_bits(good, bad)):
        return torch.zeros(1)
    off = (good.double() - bad.double()).abs().nan_to_num(nan=torch.inf)
    return torch.where(_differs(good, bad), off, 0.0).flatten() if off.numel() else torch.zeros(1)


def _as_bits(*tensors):
    """Those of a byte, of which not every kind can be compared, as numbers."""
    return [one.view(torch.uint8) if one.dtype.itemsize == 1 else one for one in tensors]


def _shape(argument):
    """What tells calls apart that are not alike: shapes of tensors, other arguments as they are."""
    if isinstance(argument, torch.Tensor):
        return argument.shape, argument.dtype, argument.stride()
    if isinstance(argument, (tuple, list)):
        return [_shape(one) for one in argument]
    return argument


def _differs(one, other):
    one, other = _as_bits(one, other)
    return (one != other) & ~((one != one) & (other != other))  # noqa: PLR0124 - NaN is like NaN


def _all(kind, value):
    """Everything of a kind in nested arguments or results."""
    if isinstance(value, kind):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    return [found for one in value for found in _all(kind, one)] if isinstance(value, (tuple, list)) else []


def _tolerances(traceback):
    """The largest error in tolerances that the check had before it when it refused, by the names that probes use."""
    while traceback.tb_next:
        traceback = traceback.tb_next
    seen = traceback.tb_frame.f_locals
    if "squares" in seen:
        return seen["squares"] / seen["limit"]
    share = seen.get("share")
    for error, bound in (("error", "bound"), ("difference", "tolerance")):
        if share is None and {error, bound} <= seen.keys():
            share = seen[error] / seen[bound]
    finite = share[share.isfinite()].flatten() if torch.is_tensor(share) else torch.zeros(0)
    largest = float(finite.abs().max()) if len(finite) else 0.0
    return largest if largest > 1 else None


@contextlib.contextmanager
def _seeds_shifted(by):
    """Probes draw from generators with seeds of their own; here others are taken."""
    original = torch.Generator

    class Shifted(original):
        def manual_seed(self, seed):
            return super().manual_seed(seed + 1000 * by)

    torch.Generator = Shifted
    try:
        yield
    finally:
        torch.Generator = original
