"""Do top_k and its ragged and paged transforms find the k largest of each row, and say rightly where they lie?

sorted is called as vLLM calls it for drafts (sorted and deterministic, a release without the latter goes without),
ragged as its sparse indexer does: float32, int32 lengths, among them 0, and what lies behind a length is infinite.
unsorted and float32 leave every flag to FlashInfer. tie_small and tie_large ask which of several equal ones are taken.
page_table maps rows to fewer requests; pages_of_64 has pages, rows that begin anywhere, padding between them, out and
out_raw_indices, and k above the lengths. graph_sorted and graph_ragged are captured and replayed three times with other
inputs. What is NaN is not documented and not asked; lengths in int64, which the documentation rules out, are passed
once and told (`int64_lengths`: refused, right or misread) without a verdict.

Shapes: 1 to 300 rows of 64 to 151936, odd ones among them, k from 1 to 3000 and all of a row: of FlashInfer's kernels
SM90 takes filtered, radix in one block and in several, and CUB (from 0.7). One row in four consists of few different
numbers, one is all the same, one is -inf but for k - 3, as vLLM masks the end of the vocabulary.

Tolerance: none. The values are those of torch.sort, bit for bit; each index is one that was not given before, and the
input has this value there; with a tie broken by index the indices are the ones of a stable sort. Sorted means that no
value is above the one before it; deterministic that a second call gives the same in the same order. Outputs are what
FlashInfer allocates: while it is called, torch.empty gives it memory that holds a pattern, with 256 bytes on both sides
that must keep it.

Upstream: flashinfer/topk.py, include/flashinfer/topk.cuh, csrc/topk.cu, csrc/cub_topk.cu (0.7)
"""

import importlib
import inspect
import math
import os
import sys

PROBE = {
    "id": "sampling.top_k",
    "feature": "sampling.top_k",
    "module": "topk",
    "requires": {"sm": ">=80", "flashinfer": ">=0.6"},
    "variants": {
        "sorted": {},
        "graph_sorted": {},
        "unsorted": {},
        "float32": {},
        "tie_small": {"flashinfer": ">=0.6.9"},
        "tie_large": {"flashinfer": ">=0.6.9"},
        "ragged": {},
        "graph_ragged": {},
        "page_table": {},
        "pages_of_64": {"flashinfer": ">=0.7"},
    },
    "gpus": 1,
    "timeout_s": 120,
    "build_timeout_s": 2400,
    "compiles": ["nvcc"],
    "subset": {"units": "without_cub", "variants": ["sorted", "graph_sorted"]},  # CUB alone takes over ten minutes
    "checks": "numbers",
}

CASES = {  # rows, their length, k
    "sorted": ((1, 151936, 8), (37, 50257, 16), (300, 4096, 64), (37, 64, 8), (4, 4096, 3000)),
    "graph_sorted": ((1, 151936, 8), (37, 4096, 64)),
    "unsorted": ((1, 151936, 50), (37, 50257, 300), (200, 20001, 40), (130, 12000, 2500), (5, 777, 777)),
    "float32": ((1, 151936, 50), (37, 50257, 300), (200, 40001, 40), (130, 12000, 2500), (5, 777, 777), (3, 1000, 1)),
    "tie_small": ((37, 50257, 300), (200, 20001, 40), (130, 12000, 2000)),
    "tie_large": ((37, 50257, 300), (200, 20001, 40), (130, 12000, 2000)),
    "ragged": ((37, 5000, 2048), (4, 40960, 2048), (200, 16384, 512), (7, 2048, 2048)),
    "graph_ragged": ((37, 5000, 2048), (4, 40960, 512)),
    "page_table": ((37, 5000, 2048), (4, 40960, 512), (200, 3001, 40)),
    "pages_of_64": ((37, 5000, 2048), (4, 40960, 512), (200, 3001, 40), (6, 300, 320)),
}
HALF = ("sorted", "graph_sorted", "unsorted", "tie_small")  # bf16; tie_large is in fp16, what is ragged in float32
TIE_BREAKS = {"tie_small": 1, "tie_large": 2}
PAGE = 64
GUARD = 256  # bytes before and after an output; keeps it aligned
PATTERN = 0x5A


def build(variant):  # noqa: ARG001 - one module serves every variant
    from flashinfer.topk import get_topk_module

    get_topk_module()


def run(variant):
    tally = _Tally()
    if variant.startswith("graph"):
        return _check_graph(variant, tally)
    for rows, length, k in CASES[variant]:
        case = _Case(variant, rows, length, k)
        kept = case.copies()
        with _Poison() as poison:
            results = _call(case)
        tally.add(str(case), results, case, poison)
        if case.is_repeatable:
            again = _call(case)
            same = all(_same(one, other) for one, other in zip(results, again, strict=True))
            assert same, f"{case}: a second call gives another result, though deterministic"
        case.assert_equal(kept)
    told = {"int64_lengths": _int64_lengths()} if variant == "ragged" else {}
    return {**told, **tally.measured()}


def _check_graph(variant, tally):
    for rows, length, k in CASES[variant]:
        held = _Case(variant, rows, length, k)
        poison, results = _Poison(), []

        def call(held=held, poison=poison, results=results):
            with poison:
                results.append(_call(held))

        replay = _capture(call)
        for turn in range(3):
            held.take(_Case(variant, rows, length, k, seed=turn + 1))
            poison.fill()
            for result in results[-1]:
                result.fill_(-5)
            replay()
            tally.add(f"replay {turn + 1} of a CUDA graph with new inputs, {held}", results[-1], held, poison)
    return {"graphs": len(CASES[variant]), **tally.measured()}


def _call(case):
    """What came back, as a tuple; the first arguments by position, as vLLM passes them."""
    import flashinfer
    import flashinfer.topk

    select, transform = flashinfer.top_k, flashinfer.topk.top_k_page_table_transform
    if case.variant.endswith("ragged"):
        return (flashinfer.topk.top_k_ragged_transform(case.x, case.offsets, case.lengths, case.k),)
    if case.variant == "page_table":
        return (
            flashinfer.topk.top_k_page_table_transform(
                case.x, case.table, case.lengths, case.k, row_to_batch=case.row_to_batch
            ),
        )
    if case.variant == "pages_of_64":
        result = transform(
            case.x, case.table, case.lengths, case.k, row_to_batch=case.row_to_batch, row_starts=case.starts,
            page_table_row_starts=case.table_starts, page_size=PAGE, out=case.out, out_raw_indices=case.raw,
        )  # fmt: skip
        assert result.data_ptr() == case.out.data_ptr(), f"{case}: the result is not the tensor given as out"
        return case.out, case.raw
    if case.variant in TIE_BREAKS:
        return select(case.x, case.k, tie_break=TIE_BREAKS[case.variant])
    if case.is_repeatable:
        return select(case.x, case.k, sorted=True, deterministic=True)
    if case.is_sorted:
        return flashinfer.top_k(case.x, case.k, sorted=True)
    return flashinfer.top_k(case.x, case.k)


def _int64_lengths():
    """What happens to lengths that are not int32, as the documentation asks for."""
    import torch

    case = _Case("ragged", *CASES["ragged"][0])
    case.lengths = case.lengths.long()
    try:
        results = _call(case)
    except (RuntimeError, TypeError, ValueError):
        if _device().type == "cuda":
            torch.cuda.synchronize()  # raises where it was no refusal, but a kernel that failed
        return "refused"
    try:
        _Tally().add("int64", results, case, _Poison())
    except AssertionError:
        return "misread"
    return "right"


class _Case:
    """What one call takes."""

    def __init__(self, variant, rows, length, k, seed=0):
        import flashinfer
        import torch

        self.variant, self.k, self.width = variant, k, length
        self.is_plain = not variant.endswith("ragged") and not variant.startswith("page")
        self.is_sorted = variant in ("sorted", "graph_sorted")
        self.is_repeatable = self.is_sorted and "deterministic" in inspect.signature(flashinfer.top_k).parameters
        self.seed = seed
        self.generator = torch.Generator(_device()).manual_seed(10000 * seed + rows + length)
        self.dtype = torch.float16 if variant == "tie_large" else torch.bfloat16 if variant in HALF else torch.float32
        self.x = self._scores(rows, length)
        if not self.is_plain:
            self._cut(rows, length)

    def __str__(self):
        return f"the {self.k} largest of {self.width}, {len(self.x)} rows"

    def _integers(self, low, high, size):
        import torch

        drawn = torch.randint(low, high, size, generator=self.generator, device=_device())
        return drawn.int()

    def _scores(self, rows, length):
        """Rows that differ in scale and offset; with padding between them where that is asked for."""
        import torch

        device = _device()
        padding = 56 if self.variant == "pages_of_64" else 0
        place = torch.arange(rows, device=device)[:, None]
        x = torch.randn((rows, length), generator=self.generator, device=device)
        x = x * torch.exp2(place % 7 - 3.0) + place % 5 - 2
        x[1::4] = (x[1::4] * 2).round() / 2
        x[::4, -1] = x[2::4, 0] = 60.0  # the ends of a row count
        if rows > 2:
            x[-1] = 0.75
            few = max(1, self.k - 3)
            x[-2, torch.randperm(length, generator=self.generator, device=device)[few:]] = -math.inf
        wide = torch.full((rows, length + padding), math.inf, dtype=self.dtype, device=device)
        wide[:, :length] = x + 0.0  # no negative zeros, which compare as zeros and may be ordered below them
        return wide[:, :length]

    def _cut(self, rows, length):
        """Lengths, and what the transforms map to. What is behind a length is the largest of all."""
        import torch

        device = _device()
        starts = self._integers(0, length // 3, (rows,)) if self.variant == "pages_of_64" else None
        room = length - starts if starts is not None else torch.full((rows,), length, device=device).int()
        edges = torch.tensor([length, 0, self.k, self.k + 1, 1, self.k - 1], device=device).int()
        lengths = self._integers(1, length + 1, (rows,))
        count = min(rows, len(edges))
        lengths[:count] = edges[:count]
        self.lengths = torch.minimum(lengths, room)
        place = torch.arange(length, device=device)
        begin = starts[:, None] if starts is not None else 0
        last = place == begin + self.lengths[:, None] - 1
        self.x.masked_fill_(last & (torch.arange(rows, device=device) % 4 == 3)[:, None], 60.0)
        self.x.masked_fill_((place < begin) | (place >= begin + self.lengths[:, None]), math.inf)
        self.starts, self.table_starts = starts, None
        if self.variant.endswith("ragged"):
            # vLLM passes zeros; the first row has one.
            self.offsets = 1000 * torch.arange(rows, device=device, dtype=torch.int32) + 17 * self.seed
        else:
            self._map(rows, length)

    def _map(self, rows, length):
        """A page table in which no page comes twice, for fewer requests than there are rows."""
        import torch

        device = _device()
        requests = rows // 3 + 1
        self.size = PAGE if self.variant == "pages_of_64" else 1
        self.row_to_batch = (7 * torch.arange(rows, device=device) % requests).int()
        pages = -(-length // self.size)
        if self.size > 1:
            self.table_starts = self._integers(0, 5, (rows,))
            pages += 5
        order = torch.randperm(requests * pages, generator=self.generator, device=device)
        self.table = (3 * order + 1).int().view(requests, pages)
        if self.size > 1:
            self.out, self.raw = (_guarded((rows, self.k)) for _ in range(2))

    def inputs(self):
        names = ("x", "lengths", "offsets", "table", "row_to_batch", "starts", "table_starts")
        return {name: value for name in names if (value := getattr(self, name, None)) is not None}

    def copies(self):
        return {name: tensor.clone() for name, tensor in self.inputs().items()}

    def take(self, other):
        for name, tensor in self.inputs().items():
            tensor.copy_(other.inputs()[name])

    def assert_equal(self, kept):
        for name, tensor in self.inputs().items():
            assert _same(tensor, kept[name]), f"{self}: {name} was changed"
        for output in (getattr(self, name, None) for name in ("out", "raw")):
            assert output is None or _guards_stay(output), f"{self}: something was written beside an output"

    def windows(self):
        """The scores that count, the others -inf, from column 0 on; and how many of each row should be given."""
        import torch

        x = self.x.float()
        if self.is_plain:
            return x, torch.full((len(x),), self.k, device=x.device)
        place = torch.arange(self.width, device=x.device).expand(len(x), -1)
        begin = self.starts[:, None] if self.starts is not None else 0
        moved = x.gather(1, (place + begin).clamp(max=self.width - 1))
        inside = place < self.lengths[:, None]
        return moved.masked_fill(~inside, -math.inf), self.lengths.clamp(max=self.k).long()

    def local(self, results):
        """Where in its window each index points, -1 for none; from what the transforms made of it."""
        import torch

        if self.is_plain:
            return results[1].long()
        found = results[0].long()
        none = found == -1
        if self.variant.endswith("ragged"):
            moved = found - self.offsets[:, None]
            return torch.where(none, -1, torch.where(moved < 0, -9, moved))
        pages = found // self.size
        known = self.table.flatten().long()
        places = torch.full((int(known.max()) + 2,), -9, device=found.device)
        places[known] = torch.arange(len(known), device=found.device)
        flat = places[pages.clamp(min=0, max=len(places) - 1)]
        request, column = flat // self.table.shape[1], flat % self.table.shape[1]
        if self.table_starts is not None:
            column = column - self.table_starts[:, None]
        is_own = (flat >= 0) & (request == self.row_to_batch[:, None])
        return torch.where(none, -1, torch.where(is_own, column * self.size + found % self.size, -9))


class _Tally:
    """Compares what was selected with a sort and keeps count."""

    def __init__(self):
        self.selected, self.cases, self.tied = 0, 0, 0

    def add(self, where, results, case, poison):
        self._check_form(where, results, case)
        poison.assert_kept(where)
        x, counts = case.windows()
        local = case.local(results)
        self._check_places(where, local, counts, case)
        wanted = x.sort(dim=1, descending=True).values[:, : case.k]
        there = _columns(wanted.shape[1], x) < counts[:, None]
        given = x.gather(1, local[:, : wanted.shape[1]].clamp(min=0)).masked_fill(~there, -math.inf)
        wanted = wanted.masked_fill(~there, -math.inf)
        _assert_none(where, "values at the indices", given.sort(1, descending=True).values != wanted, given, wanted)
        if case.is_plain:
            values = results[0].float()
            _assert_none(where, "values", values != given, values, given)
        if case.is_sorted:
            _assert_none(where, "values", given != wanted, given, wanted)
        if case.variant in TIE_BREAKS:
            self._check_ties(where, x, local, case)
        if case.variant == "pages_of_64":
            raw = results[1].long()
            _assert_none(where, "raw indices", raw != local, raw, local)
        self.cases += 1
        self.selected += int(counts.sum())
        cut = wanted.gather(1, (counts[:, None] - 1).clamp(min=0))
        self.tied += int((((x == cut).sum(1) > (wanted == cut).sum(1)) & (counts > 0)).sum())

    @staticmethod
    def _check_form(where, results, case):
        import torch

        shape = (len(case.x), case.k)
        dtypes = (case.dtype, torch.int64) if case.is_plain else (torch.int32, torch.int32)
        assert len(results) == 2 or not case.is_plain, f"{where}: {len(results)} tensors, expected values and indices"
        for result, dtype in zip(results, dtypes, strict=False):
            assert result.shape == shape, f"{where}: shape {tuple(result.shape)}, expected {shape}"
            assert result.dtype == dtype, f"{where}: {result.dtype}, expected {dtype}"
            assert result.is_contiguous(), f"{where}: strides {result.stride()}"

    @staticmethod
    def _check_places(where, local, counts, case):
        """Raises AssertionError where an index is not of its row, comes twice, or is -1 where there is one to give."""
        import torch

        there = _columns(case.k, local) < counts[:, None]
        _assert_none(where, "places behind the last", ~there & (local != -1), local, local)
        width = case.lengths[:, None] if not case.is_plain else case.width
        _assert_none(where, "indices (outside of their row)", there & ((local < 0) | (local >= width)), local, local)
        own = torch.where(there, local, -1 - _columns(case.k, local)).sort(1).values
        _assert_none(where, "indices (given twice)", own[:, 1:] == own[:, :-1], own, own)

    @staticmethod
    def _check_ties(where, x, local, case):
        """Of those that equal the last one taken, the first or the last of the row are taken."""
        is_large = case.variant == "tie_large"
        order = (x.flip(1) if is_large else x).sort(dim=1, descending=True, stable=True).indices[:, : case.k]
        wanted = (case.width - 1 - order if is_large else order).sort(1).values
        found = local.sort(1).values
        _assert_none(where, "indices of ties", found != wanted, found, wanted)

    def measured(self):
        return {
            "cases": self.cases,
            "selected": self.selected,
            "rows_cut_in_a_tie": self.tied,
            "wrong_elements": 0,
        }


class _Poison:
    """While it is entered, what torch.empty returns holds a pattern and lies between guards that hold it, too."""

    def __init__(self):
        self.buffers = []

    def __enter__(self):
        import torch

        self.original, torch.empty = torch.empty, self._empty
        return self

    def __exit__(self, *_):
        import torch

        torch.empty = self.original

    def _empty(self, *size, **options):
        if set(options) - {"dtype", "device"}:
            return self.original(*size, **options)
        shape = tuple(size[0]) if len(size) == 1 and not isinstance(size[0], int) else size
        made = _guarded(shape, options.get("dtype"), options.get("device"), self.original)
        self.buffers.append(made)
        return made

    def fill(self):
        for buffer in self.buffers:
            _whole(buffer).fill_(PATTERN)

    def assert_kept(self, where):
        for buffer in self.buffers:
            assert _guards_stay(buffer), f"{where}: something was written beside an output"


def _guarded(shape, dtype=None, device=None, empty=None):
    """A tensor in the middle of memory that holds a pattern; int32 on the device, if nothing else is said."""
    import torch

    dtype = dtype or torch.int32
    count = math.prod(shape) * dtype.itemsize
    buffer = (empty or torch.empty)((GUARD + count + GUARD,), dtype=torch.uint8, device=device or _device())
    return buffer.fill_(PATTERN)[GUARD : GUARD + count].view(dtype).view(shape)


def _whole(tensor):
    """All bytes of the memory that a guarded tensor lies in."""
    import torch

    return torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(tensor.untyped_storage())


def _guards_stay(tensor):
    whole = _whole(tensor)
    return bool((whole[:GUARD] == PATTERN).all() & (whole[-GUARD:] == PATTERN).all())


def _columns(count, like):
    import torch

    return torch.arange(count, device=like.device)[None, :]


def _same(one, other):
    """Bit by bit."""
    import torch

    return torch.equal(one.contiguous().view(torch.uint8), other.contiguous().view(torch.uint8))


def _assert_none(where, what, bad, found, expected):
    if bad.any():
        at = tuple(bad.nonzero()[0].tolist())
        raise AssertionError(
            f"{where}: {int(bad.sum())} of {bad.numel()} {what} are wrong, in {int(bad.any(1).sum())} of {len(bad)} "
            f"rows, the first at {at}: got {found[at].item():.6g}, expected {expected[at].item():.6g}"
        )


def _capture(call):
    """A function that replays the call from a CUDA graph; run before on a side stream, as torch wants it."""
    import torch

    if _device().type == "cpu":
        return importlib.import_module("flashinfer.topk").stand_in_for_a_graph(call)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(2):
            call()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    return graph.replay


def _device():
    """The GPU; the CPU only where the checks themselves are tested against a stand-in for FlashInfer."""
    import torch

    name = os.environ.get("FI_DOCTOR_PROBE_DEVICE", "cuda")
    return torch.device(name, 0) if name == "cuda" else torch.device(name)


if __name__ == "__main__":
    import torch

    if torch.cuda.device_count() < PROBE["gpus"]:
        sys.exit(f"{PROBE['id']} needs {PROBE['gpus']} GPU, torch sees {torch.cuda.device_count()}")
    for name in sys.argv[1:] or PROBE["variants"]:
        build(name)
        print(name, run(name))
