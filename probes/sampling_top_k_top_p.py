"""Do FlashInfer's top-k and top-p samplers draw only allowed tokens, with the right frequencies and fresh randomness?

Variants are the calls that vLLM makes, with its arguments (a k and a p for each row, deterministic=True): top_k_top_p
(top_k_top_p_sampling_from_logits, top-k first), top_p and top_k (from probabilities). joint is the other order of the
first, successive_calls the one thing that vLLM does differently from all of these: it passes no generator. None is
captured in a CUDA graph: vLLM samples after the model's step, outside of its graphs.

Allowed tokens: 60 rows over vocabularies of 50257 (odd) and 128256 with every pairing of k = 1, 2, 50, 1000, all and
p = 1, 0.95, 0.5, 0.1; half of the rows hold logits rounded to bf16, as models give them, which tie. A token is allowed
when fewer than k tokens are more probable and these have less than p of the mass (of the k tokens; of all where top-p
is applied alone or jointly); the tokens of a tie are alike. The reference is float64. Mass is compared with 2^-15 to
spare: a thread sums up to 126 float32 numbers, a tree of 10 levels follows, and the float32 softmax before it does as
much (136 * 2^-24 twice is 2^-16).

Frequencies: 262144 draws from 4 rows of 111 tokens with different k and p, in which p lies in the middle between two
sums so that no rounding decides, and 2048 draws from a row of 128256, counted in 16 slices of the vocabulary. The
squared deviations over the expectations (about 130 draws at least) add up to a chi-square variable. It must not exceed
df + 2 sqrt(df t) + 2 t with t = 9 ln 10, which happens to a right sampler with probability 1e-9 at most (Laurent and
Massart 2000, lemma 1), and does happen when probabilities are off by 5 %.

Randomness: one seed gives the same draws twice, and draws that follow each other differ. Versions that make a new
generator for each call without one repeat the same random numbers in every decoding step; successive_calls says so.

Upstream: include/flashinfer/sampling.cuh, flashinfer/sampling.py; vllm/v1/sample/ops/topk_topp_sampler.py
"""

import itertools
import math
import os
import sys

PROBE = {
    "id": "sampling.top_k_top_p",
    "feature": "sampling.top_k_top_p",
    "module": "sampling",
    "requires": {
        "sm": ">=75",
        "flashinfer": ">=0.5",
        "symbols": [
            "flashinfer.sampling.top_k_top_p_sampling_from_logits",
            "flashinfer.sampling.top_p_sampling_from_probs",
            "flashinfer.sampling.top_k_sampling_from_probs",
        ],
    },
    "variants": {"top_k_top_p": {}, "top_p": {}, "top_k": {}, "joint": {}, "successive_calls": {}},
    "gpus": 1,
    "timeout_s": 180,
    "build_timeout_s": 1200,
    "compiles": ["nvcc"],
    "checks": "numbers",
}

VOCABULARIES = (50257, 128256)
TOP_KS = (1, 2, 50, 1000, None)  # None: the whole vocabulary, which is how vLLM says "no top-k"
TOP_PS = (1.0, 0.95, 0.5, 0.1)
ROWS = 60  # three times every pairing of the above
CALLS = 16
MASS_TO_SPARE = 2**-15
SMALL_VOCABULARY = 111
SMALL_ROWS = ((8, 0.9), (111, 0.6), (5, 1.0), (20, 0.8))  # k and about p
SMALL_SPREAD = 2.5  # from the least to the most probable token, in logits
SMALL_COPIES = 4096  # of each of these rows in one call
WIDE_COPIES = 128
SLICES = 16
LN_FALSE_ALARM = 9 * math.log(10)


def build(variant):  # noqa: ARG001 - one module serves every variant
    from flashinfer.sampling import get_sampling_module

    get_sampling_module()


def run(variant):
    if variant == "successive_calls":
        return _check_successive_calls()
    return {
        **_check_allowed(variant),
        **_check_frequencies(variant),
        **_check_slices(variant),
        **_check_generator(variant),
    }


def _sample(variant, logits, k, p, generator):
    """The call under test as vLLM makes it, except that it passes no generator."""
    import flashinfer.sampling

    if variant == "top_p":
        return flashinfer.sampling.top_p_sampling_from_probs(
            logits.softmax(-1), p, deterministic=True, generator=generator
        )
    if variant == "top_k":
        return flashinfer.sampling.top_k_sampling_from_probs(
            logits.softmax(-1), k, deterministic=True, generator=generator
        )
    order = "joint" if variant == "joint" else "top_k_first"
    return flashinfer.sampling.top_k_top_p_sampling_from_logits(
        logits, k, p, filter_apply_order=order, deterministic=True, generator=generator
    )


def _check_allowed(variant):
    generator = _generator(5)
    for vocabulary in VOCABULARIES:
        logits, k, p = _mixed_rows(vocabulary, generator)
        allowed = _allowed(variant, logits, k, p, MASS_TO_SPARE)
        for _ in range(CALLS):
            tokens = _tokens(_sample(variant, logits, k, p, generator), ROWS, vocabulary)
            outside = ~allowed.gather(1, tokens[:, None])[:, 0]
            if outside.any():
                row = int(outside.nonzero()[0])
                raise AssertionError(
                    f"{variant}, vocabulary {vocabulary}: {int(outside.sum())} of {ROWS} rows drew a token that is not "
                    f"allowed, the first is row {row} with k={int(k[row])} and p={float(p[row]):.4g}: token "
                    f"{int(tokens[row])}, where {int(allowed[row].sum())} tokens are allowed"
                )
    return {"vocabularies": " ".join(map(str, VOCABULARIES)), "draws_inside": ROWS * CALLS * len(VOCABULARIES)}


def _check_frequencies(variant):
    import torch

    generator = _generator(6)
    device = generator.device
    logits = torch.rand(len(SMALL_ROWS), SMALL_VOCABULARY, generator=generator, device=device).argsort(-1)
    logits = logits * (SMALL_SPREAD / SMALL_VOCABULARY)  # evenly spaced, in another order in each row
    k = torch.tensor([k for k, _ in SMALL_ROWS], dtype=torch.int32, device=device)
    p = _between_sums(variant, logits, k, [p for _, p in SMALL_ROWS])
    many = SMALL_COPIES * len(SMALL_ROWS)
    inputs = [tensor.repeat(SMALL_COPIES, *[1] * (tensor.dim() - 1)) for tensor in (logits, k, p)]  # rows in turn
    counts = torch.zeros(len(SMALL_ROWS) * SMALL_VOCABULARY, dtype=torch.int64, device=device)
    for _ in range(CALLS):
        tokens = _tokens(_sample(variant, *inputs, generator), many, SMALL_VOCABULARY)
        of_row = torch.arange(many, device=device) % len(SMALL_ROWS)
        counts += torch.bincount(of_row * SMALL_VOCABULARY + tokens, minlength=len(counts))
    kept = logits.double().softmax(-1) * _allowed(variant, logits, k, p, 0.0)
    expected = kept / kept.sum(-1, keepdim=True) * (many * CALLS / len(SMALL_ROWS))
    what = f"{variant}, vocabulary {SMALL_VOCABULARY}"
    squares, limit = _chi_square(counts.view_as(expected), expected, what)
    return {"draws": many * CALLS, "chi_square": squares, "chi_square_limit": limit}


def _check_slices(variant):
    """One wide row: whether each slice of the vocabulary is drawn as often as it should."""
    import torch

    generator = _generator(7)
    vocabulary = VOCABULARIES[-1]
    logits = torch.randn(1, vocabulary, generator=generator, device=generator.device)
    k = torch.tensor([vocabulary // 2], dtype=torch.int32, device=logits.device)
    p = torch.tensor([0.9], device=logits.device)
    inputs = [tensor.repeat(WIDE_COPIES, *[1] * (tensor.dim() - 1)) for tensor in (logits, k, p)]
    counts = torch.zeros(SLICES, dtype=torch.int64, device=logits.device)
    for _ in range(CALLS):
        tokens = _tokens(_sample(variant, *inputs, generator), WIDE_COPIES, vocabulary)
        counts += torch.bincount(tokens * SLICES // vocabulary, minlength=SLICES)
    kept = (logits.double().softmax(-1) * _allowed(variant, logits, k, p, 0.0))[0]
    slices = torch.arange(vocabulary, device=logits.device) * SLICES // vocabulary
    expected = torch.zeros(SLICES, dtype=kept.dtype, device=kept.device).index_add_(0, slices, kept / kept.sum())
    what = f"{variant}, {SLICES} slices of vocabulary {vocabulary}"
    squares, limit = _chi_square(counts[None], expected[None] * WIDE_COPIES * CALLS, what)
    return {"wide_draws": WIDE_COPIES * CALLS, "wide_chi_square": squares, "wide_chi_square_limit": limit}


def _check_generator(variant):
    """A seed repeats its draws, and draws that follow each other differ."""
    import torch

    inputs = _flat_rows()
    first, second = _generator(8), _generator(8)
    draws = [_sample(variant, *inputs, first) for _ in range(2)]
    again = [_sample(variant, *inputs, second) for _ in range(2)]
    for one, other in zip(draws, again, strict=True):
        assert torch.equal(one, other), f"{variant}: two generators of one seed gave different draws"
    assert not torch.equal(*draws), f"{variant}: two calls with one generator gave the same {len(draws[0])} tokens"
    return {"seed_repeats": True}


def _check_successive_calls():
    """Without a generator, as vLLM calls: draws that follow each other must differ."""
    import torch

    inputs = _flat_rows()
    for variant in ("top_k_top_p", "top_p", "top_k"):
        draws = [_sample(variant, *inputs, None) for _ in range(3)]
        for one, other in itertools.combinations(draws, 2):
            assert not torch.equal(one, other), (
                f"{variant}: two calls without a generator drew the same {len(one)} tokens"
            )
    return {"calls": len(draws), "rows": len(draws[0])}


def _mixed_rows(vocabulary, generator):
    """Logits, k and p: narrow and wide distributions; the second half of the rows rounded to bf16, with ties."""
    import torch

    device = generator.device
    width = torch.tensor([1.0, 4.0, 2.0], device=device)[torch.arange(ROWS, device=device) // 7 % 3]
    logits = torch.randn(ROWS, vocabulary, generator=generator, device=device) * width[:, None]
    logits[ROWS // 2 :] = logits[ROWS // 2 :].bfloat16().float()
    ks = [TOP_KS[row % len(TOP_KS)] or vocabulary for row in range(ROWS)]
    ps = [TOP_PS[row % len(TOP_PS)] for row in range(ROWS)]
    return logits, torch.tensor(ks, dtype=torch.int32, device=device), torch.tensor(ps, device=device)


def _flat_rows():
    """64 equal rows in which half of a vocabulary is allowed: chance does not draw the same 64 tokens twice."""
    import torch

    generator = _generator(9)
    logits = torch.randn(1, VOCABULARIES[0], generator=generator, device=generator.device).repeat(64, 1)
    k = torch.full((64,), VOCABULARIES[0] // 2, dtype=torch.int32, device=logits.device)
    return logits, k, torch.full((64,), 0.99, device=logits.device)


def _allowed(variant, logits, k, p, to_spare):
    """Which tokens may be drawn in each row; tokens within to_spare of p's bound may."""
    values, order, heavier = _by_weight(variant, logits)
    mass = values.cumsum(-1)
    heavier_mass = (mass - values).gather(1, heavier)
    kept = heavier < (logits.shape[1] if variant == "top_p" else k[:, None])
    if variant != "top_k":
        whole = (values * kept).sum(-1, keepdim=True) if variant == "top_k_top_p" else mass[:, -1:]
        kept = kept & (heavier_mass < (p[:, None].double() + to_spare) * whole)
    return kept.new_zeros(kept.shape).scatter_(1, order, kept)


def _by_weight(variant, logits):
    """Probabilities from large to small, whose they are, and how many are larger than each (ties count alike)."""
    import torch

    # The kernels that start from probabilities see ties that float32 makes, the mask of top-k those of the logits.
    weights = logits if variant == "top_k_top_p" else logits.softmax(-1)
    sorted_weights, order = weights.sort(dim=-1, descending=True)
    values = logits.double().softmax(-1).gather(1, order)
    place = torch.arange(logits.shape[1], device=logits.device).expand_as(order)
    begins = torch.ones_like(order, dtype=torch.bool)
    begins[:, 1:] = sorted_weights[:, 1:] != sorted_weights[:, :-1]
    return values, order, torch.where(begins, place, 0).cummax(-1).values


def _between_sums(variant, logits, k, targets):
    """For each row a p near the target that lies in the middle between two sums of sorted probabilities."""
    import torch

    values, _, _ = _by_weight(variant, logits)
    if variant == "top_k_top_p":
        values = values * (torch.arange(values.shape[1], device=values.device) < k[:, None])
    sums = (values / values.sum(-1, keepdim=True)).cumsum(-1)
    middles = torch.cat((sums[:, :1] / 2, (sums[:, 1:] + sums[:, :-1]) / 2), dim=-1)
    wanted = torch.tensor(targets, dtype=middles.dtype, device=middles.device)[:, None]
    nearest = middles.gather(1, (middles - wanted).abs().argmin(-1, keepdim=True))
    return torch.where(wanted == 1, wanted, nearest)[:, 0].float()


def _chi_square(counts, expected, what):
    """The statistic and its limit; raises AssertionError above it, or when something impossible was drawn."""
    possible = expected > 0
    impossible = int(counts[~possible].sum())
    assert impossible == 0, f"{what}: {impossible} draws of tokens that are not allowed"
    squares = ((counts[possible] - expected[possible]).square() / expected[possible]).sum().item()
    freedom = int(possible.sum()) - len(expected)
    limit = freedom + 2 * math.sqrt(freedom * LN_FALSE_ALARM) + 2 * LN_FALSE_ALARM
    assert squares <= limit, (
        f"{what}: frequencies are off, chi-square {squares:.1f} with {freedom} degrees of freedom, limit {limit:.1f}"
    )
    return squares, limit


def _tokens(result, rows, vocabulary):
    """The drawn tokens as indices; raises AssertionError when they are none."""
    assert tuple(result.shape) == (rows,), f"shape {tuple(result.shape)}, expected {(rows,)}"
    tokens = result.long()
    assert int(tokens.min()) >= 0, f"token {int(tokens.min())} drawn"
    assert int(tokens.max()) < vocabulary, f"token {int(tokens.max())} drawn from {vocabulary}"
    return tokens


def _generator(seed):
    import torch

    return torch.Generator(_device()).manual_seed(seed)


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
