"""Do the batch prefill wrappers give the right attention over a paged and over a ragged KV cache, with FA2 and FA3?

They are called as vLLM calls them: page tables planned on the host, queries that are slices of a fused QKV tensor,
the cache as one tensor [pages, 2, ...] or, as newer vLLM packs it, as halves of the last dimension, k_scale and
v_scale of 1.0, out= given. Each call is made a second time with return_lse=True.

Shapes: bf16, head size in the variant's name; 8 query heads over 2 KV heads and 4 over 4; causal and not; NHD and HND,
pages of 16 and 1 tokens in shuffled order. FA2 splits the KV of a batch as soon as a request has more than 128 keys
(PrefillSplitQOKVIndptr), so there are batches without such a request and with one, each with few queries (query/KV
lengths 3/77, 0/16, 1/18, 2/127; the last 2/130: small query tiles) and with many (37/37, 0/21, 70/127; and 1/310, 0/21,
37/37, 128/513, 0/0, 200/331, 1/2100: large tiles). sm_scale is 0.75/sqrt(head size), so that a default in its place is
noticed. Queries are three times as large as keys, and the last key of each request answers to its last query, so that
every key matters to some row. Head sizes 64 and 256 are called over pages and causal, as vLLM calls them; the other
calls are kernels of their own for each size, and of FA3 each takes more than a minute to compile.

NaN lies in spare pages, behind the last token of a last page, around ragged keys and values, between the slices of the
fused tensor, and in the outputs before the call and around them. Both backends read none of it: a row behind the end
of a request is predicated off and V is filled with zeros there (FA2 page_produce_kv, FA3 sparse_mainloop.cuh), a masked
key is replaced by -inf and not multiplied, and the TMA loads of ragged FA3 end with the tensor. What a query without
any key gives is not documented, so no request has one.

Tolerance: |out - ref| <= 2^-7 (sum_i p_i |v_i| + |ref|) + 1e-5, element by element against float64. The unit roundoff
of bf16 is u = 2^-8; p is rounded in the product with v and in the sum that divides it, the output once, and with split
KV the partial outputs once more: at most 2 u on each term. LSE (base 2): 2^-8/ln 2 + 1e-4, from the sum of rounded p.

Head sizes 45, 80 and 192 are not offered (vLLM asks for 64, 128 and 256): each call is right, or refused by words of
the host code about the head size (REFUSAL), after which the GPU must still answer. The words may come late: where KV is
split, the attention kernel has run when the kernel that merges its parts is refused. A static assertion about the head
size refuses all calls; it is read from the header, since a failing build would be tried again in every run.

Upstream: include/flashinfer/attention/prefill.cuh, include/flashinfer/attention/hopper/prefill_sm90.cuh,
csrc/batch_prefill.cu, csrc/batch_prefill_sm90.cu
"""

import functools
import itertools
import math
import os
import re
import sys
import textwrap
from pathlib import Path

PROBE = {
    "id": "attention.prefill",
    "feature": "attention.prefill",
    "module": "batch_prefill_with_kv_cache",
    "requires": {
        "sm": ">=80",
        "flashinfer": ">=0.5",
        "symbols": [
            "flashinfer.prefill.BatchPrefillWithPagedKVCacheWrapper",
            "flashinfer.prefill.BatchPrefillWithRaggedKVCacheWrapper",
        ],
    },
    "variants": {
        "fa2_d64": {},
        "fa2_d128": {},
        "fa2_d256": {},
        "fa3_d64": {"sm": ">=90,<91"},
        "fa3_d128": {"sm": ">=90,<91"},
        "fa3_d256": {"sm": ">=90,<91"},
        "fa3_d80": {"sm": ">=90,<91"},
        "fa3_d192": {"sm": ">=90,<91"},
        "fa2_d45": {},
        "fa2_d192": {},
        "fa2_d80": {},
    },
    "gpus": 1,
    "timeout_s": 120,
    "build_timeout_s": 600,
    "compiles": ["nvcc"],
    "subset": {  # no call of vLLM's takes other masks
        "units": "no_mask_or_causal",
        "units_of": {"fa2_d64": "paged", "fa2_d256": "paged", "fa3_d64": "paged_causal", "fa3_d256": "paged_causal"},
        "if_short": True,
    },
    "checks": "numbers",
}

OFFERED = (64, 128, 256)
ONLY_PAGED_CAUSAL = (64, 256)
BATCHES = {  # (query tokens, KV tokens) of each request; first those whose KV is not split
    "short": ((3, 77), (0, 16), (1, 18), (2, 127)),
    "medium": ((37, 37), (0, 21), (70, 127)),
    "split short": ((3, 77), (0, 16), (1, 18), (2, 130)),
    "long": ((1, 310), (0, 21), (37, 37), (128, 513), (0, 0), (200, 331), (1, 2100)),
}
HEADS = ((8, 2), (4, 4))  # query heads and KV heads
CACHES = (  # layout, page size, whether keys and values are packed into the last dimension
    ("NHD", 16, False),
    ("HND", 16, False),
    ("NHD", 1, False),
    ("HND", 1, False),
    ("NHD", 16, True),
    ("HND", 16, True),
)
SPARE_PAGES = 5
GUARD = 8  # rows of NaN before and behind a tensor
QUERY_SIZE = 3.0  # standard deviation of a query's elements; that of keys and values is 1
LAST_LOGIT = 8.0  # of the last query and the last key; the largest of 2000 random ones is about as large
WORKSPACE_BYTES = 128 * 1024 * 1024  # the size that FlashInfer recommends
TOLERANCE = 2.0**-7
LSE_TOLERANCE = 2.0**-8 / math.log(2) + 1e-4
REFUSAL = re.compile(  # CUDA's own "invalid configuration argument" and "operation not supported" are none
    r".*(?:\bInvalid configuration :|\bUnsupported (?:head_dim|max_mma_kv):|\bhead_dim.*\bnot supported\b).*"
)
ERROR_OF_THE_GPU = re.compile(r"\bCUDA error\b|\billegal memory access\b", re.IGNORECASE)
FAILED_ASSERTION = re.compile(r"flashinfer/attention/[^\n]*error: static assertion failed[^\n]*\n?[^\n]*HEAD_DIM[^\n]*")


def build(variant):
    return False if _refused_by_the_compiler(variant) else None


def run(variant):
    backend, head_size = _parts(variant)
    measured = {"backend": backend, "head_size": head_size}
    if refused := _refused_by_the_compiler(variant):
        return {**measured, "answer": "refused", "refusal": refused, "cases": 0, "elements": 0}
    checked, cases, refusals = _check_all(backend, head_size)
    return {
        **measured,
        **_answer(cases, refusals),
        "shapes": " ".join(f"{queries}:{keys}" for queries, keys in HEADS),
        "caches": " ".join(f"{layout}/{size}{'/packed' if packed else ''}" for layout, size, packed in CACHES)
        + ("" if head_size in ONLY_PAGED_CAUSAL else " ragged"),
        "elements": checked,
        "wrong_elements": 0,
    }


def _answer(cases, refusals):
    """What became of the calls, none of which gave a wrong number; with the words of the first refusal."""
    counts = {"cases": cases, "refused_cases": len(refusals)}
    if not refusals:
        return {"answer": "right", **counts}
    some = f"right where not refused: {len(refusals)} of {cases} cases refused"
    return {"answer": "refused" if len(refusals) == cases else some, "refusal": refusals[0], **counts}


def _parts(variant):
    backend, _, size = variant.partition("_d")
    return backend, int(size)


@functools.cache
def _refused_by_the_compiler(variant):
    """Why there is no module for the head size; "" when it is built and loaded."""
    import torch
    from flashinfer.prefill import get_batch_prefill_module

    backend, size = _parts(variant)
    if size not in OFFERED and backend == "fa3" and (assertion := _assertion_against(size)):
        return assertion
    bf16 = torch.bfloat16
    window = soft_cap = fp16_qk = False
    try:  # the arguments, as they are, under which plan() looks up the module
        get_batch_prefill_module(backend, bf16, bf16, bf16, torch.int32, size, size, 0, window, soft_cap, fp16_qk)
    except RuntimeError as error:
        found = FAILED_ASSERTION.search(str(error))
        if size in OFFERED or not found or "fatal error" in str(error):
            raise
        return " ".join(found[0].rpartition("/")[2].split())
    if backend == "fa3":
        _build_page_module()
    return ""


def _assertion_against(size):
    """The static_assert of the paged FA3 kernels that excludes a head size, or ""."""
    from flashinfer.jit import env

    source = Path(env.FLASHINFER_INCLUDE_DIR, "flashinfer/attention/hopper/prefill_sm90.cuh").read_text(
        encoding="utf-8"
    )
    body = r"BatchPrefillWithPagedKVCacheDispatched\(Params& params[^{]*\{\s*"
    sizes = r"static_assert\(HEAD_DIM_VO == \d+(?: \|\| HEAD_DIM_VO == \d+)*\);"
    found = re.search(f"{body}({sizes})", source)
    return found[1] if found and str(size) not in re.findall(r"\d+", found[1]) else ""


def _build_page_module():
    """FA3 of FlashInfer 0.5 turns page numbers into offsets with a kernel of this module."""
    import flashinfer.page

    if hasattr(flashinfer.page, "block_sparse_indices_to_vector_sparse_offsets"):
        flashinfer.page.get_page_module()


def _check_all(backend, head_size):
    """How many elements were compared, how many calls were made, and the refusals among them."""
    checked, cases, refusals = 0, 0, []
    for check in _cases(backend, head_size):
        try:
            elements, refusal = _check(check, head_size)
        except AssertionError as error:
            if head_size in OFFERED:
                raise
            raise AssertionError(f"{error} ({len(refusals)} of the {cases} cases before were refused)") from error
        checked += elements
        cases += 1
        refusals += [refusal] if refusal else []
    return checked, cases, refusals


def _cases(backend, head_size):
    """Functions that make one call, compare what it gave and return the number of elements, in the order of BATCHES."""
    wrappers = _wrappers(backend)
    for (name, lengths), heads in itertools.product(BATCHES.items(), HEADS):
        batch = _Batch(name, lengths, heads, head_size)
        for causal in (True,) if head_size in ONLY_PAGED_CAUSAL else (True, False):
            expected = batch.attention(causal)
            for attend, name_of_call in _calls(wrappers, batch, causal):
                where = f"{backend}, head size {head_size}, {name_of_call}"
                for with_lse in (False, True):
                    yield functools.partial(_call_and_compare, attend, batch, expected, where, with_lse=with_lse)


def _wrappers(backend):
    """By layout those for pages, and the one for ragged tensors."""
    import flashinfer.prefill
    import torch

    size = WORKSPACE_BYTES if backend == "fa2" else WORKSPACE_BYTES // 8  # FA3 does not split KV
    workspace = torch.zeros(size, dtype=torch.uint8, device=_device())
    wrappers = {
        layout: flashinfer.prefill.BatchPrefillWithPagedKVCacheWrapper(workspace, layout, backend=backend)
        for layout in ("NHD", "HND")
    }
    wrappers["ragged"] = flashinfer.prefill.BatchPrefillWithRaggedKVCacheWrapper(workspace, "NHD", backend=backend)
    return wrappers


def _calls(wrappers, batch, causal):
    """For each way to keep keys and values: a function of the pair (out, lse) that plans and runs, and its name."""
    ending = f"{batch.heads[0]} query and {batch.heads[1]} KV heads, causal {causal}, {batch.name} requests"
    for layout, page_size, packed in CACHES:
        paged = _PagedCache(batch, layout, page_size, packed=packed)
        call = functools.partial(_attend_paged, wrappers[layout], batch, paged, causal)
        yield call, f"{layout}{' packed' if packed else ''}, page size {page_size}, {ending}"
    if batch.head_size not in ONLY_PAGED_CAUSAL:
        yield functools.partial(_attend_ragged, wrappers["ragged"], batch, causal), f"ragged, {ending}"


def _attend_paged(wrapper, batch, paged, causal, outputs):
    import torch

    out, lse = outputs
    wrapper.plan(
        batch.query_indptr,
        paged.indptr,
        paged.indices,
        paged.last_page_len,
        batch.heads[0],
        batch.heads[1],
        batch.head_size,
        paged.page_size,
        causal=causal,
        sm_scale=batch.scale,
        window_left=-1,
        logits_soft_cap=None,
        q_data_type=torch.bfloat16,
        kv_data_type=torch.bfloat16,
        fixed_split_size=-1,
        disable_split_kv=False,
    )
    if lse is None:
        return wrapper.run(batch.query, paged.cache, k_scale=1.0, v_scale=1.0, out=out)
    return wrapper.run(batch.query, paged.cache, k_scale=1.0, v_scale=1.0, out=out, lse=lse, return_lse=True)


def _attend_ragged(wrapper, batch, causal, outputs):
    import torch

    out, lse = outputs
    wrapper.plan(
        qo_indptr=batch.query_indptr,
        kv_indptr=batch.kv_indptr,
        num_qo_heads=batch.heads[0],
        num_kv_heads=batch.heads[1],
        head_dim_qk=batch.head_size,
        head_dim_vo=batch.head_size,
        causal=causal,
        sm_scale=batch.scale,
        window_left=-1,
        logits_soft_cap=None,
        q_data_type=torch.bfloat16,
    )
    if lse is None:
        return wrapper.run(batch.query, batch.key, batch.value, out=out)
    return wrapper.run(batch.query, batch.key, batch.value, out=out, lse=lse, return_lse=True)


class _Batch:
    """Queries, keys and values of some requests, one after the other."""

    def __init__(self, name, lengths, heads, head_size):
        import torch

        self.name, self.lengths, self.heads, self.head_size = name, lengths, heads, head_size
        self.scale = 0.75 / math.sqrt(head_size)
        self.generator = torch.Generator(_device()).manual_seed(5)
        self.query_indptr = _ints(
            [0, *itertools.accumulate(queries for queries, _ in lengths)]
        )  # on the host, as in vLLM
        self.kv_indptr = _ints([0, *itertools.accumulate(keys for _, keys in lengths)])
        self.query = self._slice_of_fused(int(self.query_indptr[-1]), heads[0])
        self.query.copy_(self._random(self.query) * QUERY_SIZE)
        self.key, self.value = self._keys_and_values(int(self.kv_indptr[-1]))
        self._let_last_keys_answer()

    def requests(self):
        """For each request the rows of its queries and those of its keys and values."""
        ends = zip(
            itertools.pairwise(self.query_indptr.tolist()), itertools.pairwise(self.kv_indptr.tolist()), strict=True
        )
        return [(slice(*queries), slice(*keys)) for queries, keys in ends]

    def attention(self, causal):
        """In float64: the output, sum_i p_i |v_i| for each of its elements, and the LSE in base 2."""
        import torch

        parts = [
            _attention(self.query[queries], self.key[keys], self.value[keys], self.scale, causal=causal)
            for queries, keys in self.requests()
            if queries.start < queries.stop
        ]
        return [torch.cat(tensors) for tensors in zip(*parts, strict=True)]

    def _slice_of_fused(self, rows, count):
        """The first heads of NaN [rows, query, key and value heads, head size]."""
        fused = _nan(rows, count + 2 * self.heads[1], self.head_size)
        return fused[:, :count]

    def _keys_and_values(self, rows):
        """Two slices [rows, KV heads, head size] of one tensor that has NaN in the rows around them."""
        count = self.heads[1]
        both = _nan(rows + 2 * GUARD, 2 * count, self.head_size)[GUARD : GUARD + rows]
        both.copy_(self._random(both))
        return both[:, :count], both[:, count:]

    def _let_last_keys_answer(self):
        """Gives each request's last key about LAST_LOGIT with its last query, in every head."""
        group = self.heads[0] // self.heads[1]
        for queries, keys in self.requests():
            if queries.start < queries.stop:
                last = self.query[queries.stop - 1].float().unflatten(0, (self.heads[1], group))
                wanted = (last / last.square().sum(-1, keepdim=True)).sum(1) * (LAST_LOGIT / self.scale)
                self.key[keys.stop - 1] = wanted.to(self.key.dtype)

    def _random(self, like):
        import torch

        return torch.randn(like.shape, generator=self.generator, device=like.device)


def _attention(query, key, value, scale, *, causal):
    """One request, in float64: [queries, heads, head size] twice and the LSE [queries, heads]."""
    import torch

    grouped = query.double().unflatten(1, (key.shape[1], -1))  # query head h belongs to KV head h // group
    scores = torch.einsum("qhgd,khd->hgqk", grouped, key.double()) * scale
    if causal:  # the last query sees every key
        hidden = torch.ones(scores.shape[2:], dtype=torch.bool, device=scores.device)
        scores = scores.masked_fill(hidden.triu(1 + len(key) - len(query)), -math.inf)
    lse = scores.logsumexp(-1)
    weights = (scores - lse[..., None]).exp()
    value = value.double()
    out, spread = (torch.einsum("hgqk,khd->qhgd", weights, v).flatten(1, 2) for v in (value, value.abs()))
    return out, spread, lse.flatten(0, 1).T / math.log(2)


class _PagedCache:
    """The keys and values of a batch in shuffled pages; whatever is not one of them is NaN."""

    def __init__(self, batch, layout, page_size, *, packed):
        import torch

        self.page_size = page_size
        lengths = [keys for _, keys in batch.lengths]
        counts = [-(-length // page_size) for length in lengths]
        total = sum(counts) + SPARE_PAGES
        self.indptr = _ints([0, *itertools.accumulate(counts)])
        self.last_page_len = _ints([(length - 1) % page_size + 1 if length else 0 for length in lengths])
        order = torch.randperm(total, generator=batch.generator, device=_device())[: sum(counts)]
        self.indices = order.to(torch.int32)  # on the GPU, as in vLLM

        inner = (page_size, batch.heads[1]) if layout == "NHD" else (batch.heads[1], page_size)
        if packed:
            self.cache = _nan(total, *inner, 2 * batch.head_size).split(batch.head_size, dim=-1)
            halves = self.cache
        else:
            self.cache = _nan(total, 2, *inner, batch.head_size)
            halves = self.cache.unbind(1)
        places = [place for r, length in enumerate(lengths) for place in self._places(r, length)]
        place = torch.tensor(places, dtype=torch.int64, device=_device())
        for half, tokens in zip(halves, (batch.key, batch.value), strict=True):
            by_token = half if layout == "NHD" else half.transpose(1, 2)  # [pages, page size, heads, head size]
            by_token[order[place // page_size], place % page_size] = tokens

    def _places(self, request, length):
        """Where the tokens of a request are, counted over the pages in the order of the page table."""
        first = int(self.indptr[request]) * self.page_size
        return range(first, first + length)


def _check(check, head_size):
    """The number of elements that were compared, or why a head size that is not offered was refused."""
    try:
        return check(), ""
    except (RuntimeError, ValueError) as error:
        refusal = REFUSAL.search(str(error))
        if head_size in OFFERED or not refusal or ERROR_OF_THE_GPU.search(str(error)):
            raise
        _wait_for_the_gpu()  # a kernel may have been launched before the refusal
        words = re.sub(r"^.*?:\d+: ", "", refusal[0])  # without function, file and line
        return 0, textwrap.shorten(words, 160, placeholder=" ...")


def _call_and_compare(attend, batch, expected, where, *, with_lse):
    reference, spread, reference_lse = expected
    where = f"{where}, return_lse {with_lse}"
    guarded = _nan(len(batch.query) + 2 * GUARD, batch.heads[0], batch.head_size)
    guarded_lse = _nan(len(batch.query) + 2 * GUARD, batch.heads[0]).float()
    out, lse = guarded[GUARD:-GUARD], guarded_lse[GUARD:-GUARD]
    returned = attend((out, lse if with_lse else None))
    returned = returned if with_lse else (returned,)
    assert len(returned) == 1 + with_lse, f"{where}: returned {len(returned)} tensors"
    for tensor, given in zip(returned, (out, lse), strict=False):
        assert tensor.data_ptr() == given.data_ptr(), f"{where}: the tensor that was given was not returned"
    checked = _compare(out, reference, TOLERANCE * (spread + reference.abs()) + 1e-5, where)
    _assert_guard_untouched(guarded, where)
    if with_lse:
        checked += _compare(lse, reference_lse, LSE_TOLERANCE, f"{where}, LSE")
    _assert_guard_untouched(guarded_lse, f"{where}, LSE")
    return checked


def _compare(got, reference, tolerance, where):
    """The number of elements; NaN is never within a tolerance."""
    difference = (got.double() - reference).abs()
    wrong = ~(difference <= tolerance)
    if wrong.any():
        at = tuple(wrong.nonzero()[0].tolist())
        raise AssertionError(
            f"{where}: {int(wrong.sum())} of {wrong.numel()} elements are wrong, the first at {at} of "
            f"{tuple(got.shape)}: got {got[at].item():.6g}, expected {reference[at].item():.6g}"
        )
    return got.numel()


def _assert_guard_untouched(guarded, where):
    for name, rows in (("before", guarded[:GUARD]), ("behind", guarded[-GUARD:])):
        assert rows.isnan().all(), f"{where}: wrote {name} the tensor that was given"


def _nan(*shape):
    import torch

    return torch.full(shape, math.nan, dtype=torch.bfloat16, device=_device())


def _ints(values):
    import torch

    return torch.tensor(values, dtype=torch.int32)


def _wait_for_the_gpu():
    """So that an error of the GPU behind what looked like a refusal is raised here."""
    import torch

    if _device().type == "cuda":
        torch.cuda.synchronize()


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
