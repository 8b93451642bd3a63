"""Do min_p_sampling_from_probs and plain sampling draw only allowed tokens, with the right frequencies?

Variants: min_p (with a bound for each row), from_probs and from_logits (sampling_from_probs, sampling_from_logits:
every token is allowed).

Allowed tokens: 60 rows over vocabularies of 50257 (odd) and 128256 with min-p 0, 0.001, 0.05, 0.3 and 1, half of the
rows from logits rounded to bf16, which tie. A token is allowed when its probability is at least min-p times the
largest, with 2^-20 of that to spare for one product in float32; in every third row half of the tokens are masked out
and have no probability at all.

Frequencies: 262144 draws from 4 rows of 111 tokens, in which min-p times the largest lies in the middle between two
probabilities so that no rounding decides, and 2048 draws from a row of 128256, counted in 16 slices. The squared
deviations over the expectations (about 130 draws at least) add up to a chi-square variable, which must not exceed
df + 2 sqrt(df t) + 2 t with t = 9 ln 10: a right sampler exceeds it with probability 1e-9 at most (Laurent and Massart
2000, lemma 1). One seed gives the same draws twice, and draws that follow each other differ.

Upstream: include/flashinfer/sampling.cuh (MinPSamplingFromProbKernel, SamplingFromProbKernel,
SamplingFromLogitsKernel), flashinfer/sampling.py
"""

import math
import os
import sys

PROBE = {
    "id": "sampling.min_p",
    "feature": "sampling.min_p",
    "module": "sampling",
    "requires": {
        "sm": ">=75",
        "flashinfer": ">=0.5",
        "symbols": [
            "flashinfer.sampling.min_p_sampling_from_probs",
            "flashinfer.sampling.sampling_from_probs",
            "flashinfer.sampling.sampling_from_logits",
        ],
    },
    "variants": {"min_p": {}, "from_probs": {}, "from_logits": {}},
    "gpus": 1,
    "timeout_s": 120,
    "build_timeout_s": 1200,
    "compiles": ["nvcc"],
    "checks": "numbers",
}

VOCABULARIES = (50257, 128256)
MIN_PS = (0.0, 0.001, 0.05, 0.3, 1.0)
ROWS = 60
CALLS = 16
TO_SPARE = 2.0**-20
SMALL_VOCABULARY = 111
SMALL_MIN_PS = (0.02, 0.2, 0.5, 0.0)  # about
SMALL_SPREAD = 2.5  # from the least to the most probable token, in logits
SMALL_COPIES = 4096  # of each of these rows in one call
WIDE_COPIES = 128
SLICES = 16
LN_FALSE_ALARM = 9 * math.log(10)


def build(variant):  # noqa: ARG001 - one module serves every variant
    from flashinfer.sampling import get_sampling_module

    get_sampling_module()


def run(variant):
    return {
        **_check_allowed(variant),
        **_check_frequencies(variant),
        **_check_slices(variant),
        **_check_generator(variant),
    }


def _sample(variant, logits, min_p, generator):
    import flashinfer.sampling

    if variant == "from_logits":
        return flashinfer.sampling.sampling_from_logits(logits, deterministic=True, generator=generator)
    probs = logits.softmax(-1)
    if variant == "from_probs":
        return flashinfer.sampling.sampling_from_probs(probs, deterministic=True, generator=generator)
    return flashinfer.sampling.min_p_sampling_from_probs(probs, min_p, deterministic=True, generator=generator)


def _check_allowed(variant):
    import torch

    generator = _generator(5)
    for vocabulary in VOCABULARIES:
        logits = _mixed_rows(vocabulary, generator)
        min_p = torch.tensor([MIN_PS[row % len(MIN_PS)] for row in range(ROWS)], device=logits.device)
        allowed = _allowed(variant, logits, min_p, TO_SPARE)
        for _ in range(CALLS):
            tokens = _tokens(_sample(variant, logits, min_p, generator), ROWS, vocabulary)
            outside = ~allowed.gather(1, tokens[:, None])[:, 0]
            if outside.any():
                row = int(outside.nonzero()[0])
                raise AssertionError(
                    f"vocabulary {vocabulary}: {int(outside.sum())} of {ROWS} rows drew a token that is not "
                    f"allowed, the first is row {row} with min-p {float(min_p[row]):.4g}: token {int(tokens[row])}, "
                    f"where {int(allowed[row].sum())} tokens are allowed"
                )
    return {"vocabularies": " ".join(map(str, VOCABULARIES)), "draws_inside": ROWS * CALLS * len(VOCABULARIES)}


def _check_frequencies(variant):
    import torch

    generator = _generator(6)
    device = generator.device
    rows = len(SMALL_MIN_PS)
    logits = torch.rand(rows, SMALL_VOCABULARY, generator=generator, device=device).argsort(-1)
    logits = logits * (SMALL_SPREAD / SMALL_VOCABULARY)  # evenly spaced, in another order in each row
    min_p = _between_probabilities(logits)
    many = SMALL_COPIES * rows
    inputs = [tensor.repeat(SMALL_COPIES, *[1] * (tensor.dim() - 1)) for tensor in (logits, min_p)]  # rows in turn
    counts = torch.zeros(rows * SMALL_VOCABULARY, dtype=torch.int64, device=device)
    of_row = torch.arange(many, device=device) % rows
    for _ in range(CALLS):
        tokens = _tokens(_sample(variant, *inputs, generator), many, SMALL_VOCABULARY)
        counts += torch.bincount(of_row * SMALL_VOCABULARY + tokens, minlength=len(counts))
    kept = logits.double().softmax(-1) * _allowed(variant, logits, min_p, 0.0)
    expected = kept / kept.sum(-1, keepdim=True) * (many * CALLS / rows)
    what = f"vocabulary {SMALL_VOCABULARY}"
    squares, limit = _chi_square(counts.view_as(expected), expected, what)
    return {"draws": many * CALLS, "chi_square": squares, "chi_square_limit": limit}


def _check_slices(variant):
    """One wide row: whether each slice of the vocabulary is drawn as often as it should."""
    import torch

    generator = _generator(7)
    vocabulary = VOCABULARIES[-1]
    logits = torch.randn(1, vocabulary, generator=generator, device=generator.device)
    min_p = torch.tensor([1e-3], device=logits.device)
    inputs = [tensor.repeat(WIDE_COPIES, *[1] * (tensor.dim() - 1)) for tensor in (logits, min_p)]
    counts = torch.zeros(SLICES, dtype=torch.int64, device=logits.device)
    for _ in range(CALLS):
        tokens = _tokens(_sample(variant, *inputs, generator), WIDE_COPIES, vocabulary)
        counts += torch.bincount(tokens * SLICES // vocabulary, minlength=SLICES)
    kept = (logits.double().softmax(-1) * _allowed(variant, logits, min_p, 0.0))[0]
    slices = torch.arange(vocabulary, device=logits.device) * SLICES // vocabulary
    expected = torch.zeros(SLICES, dtype=kept.dtype, device=kept.device).index_add_(0, slices, kept / kept.sum())
    what = f"{SLICES} slices of vocabulary {vocabulary}"
    squares, limit = _chi_square(counts[None], expected[None] * WIDE_COPIES * CALLS, what)
    return {"wide_draws": WIDE_COPIES * CALLS, "wide_chi_square": squares, "wide_chi_square_limit": limit}


def _check_generator(variant):
    """A seed repeats its draws, and draws that follow each other differ."""
    import torch

    generator = _generator(9)
    logits = torch.randn(1, VOCABULARIES[0], generator=generator, device=generator.device).repeat(64, 1)
    min_p = torch.full((64,), 1e-4, device=logits.device)
    first, second = _generator(8), _generator(8)
    draws = [_sample(variant, logits, min_p, first) for _ in range(2)]
    again = [_sample(variant, logits, min_p, second) for _ in range(2)]
    for one, other in zip(draws, again, strict=True):
        assert torch.equal(one, other), "two generators of one seed gave different draws"
    assert not torch.equal(*draws), f"two calls with one generator gave the same {len(draws[0])} tokens"
    return {"seed_repeats": True}


def _mixed_rows(vocabulary, generator):
    """Narrow and wide distributions, every third with a mask; the second half rounded to bf16, with ties."""
    import torch

    device = generator.device
    row = torch.arange(ROWS, device=device)
    logits = torch.randn(ROWS, vocabulary, generator=generator, device=device)
    logits *= torch.tensor([1.0, 4.0, 2.0], device=device)[row // 7 % 3][:, None]
    logits[ROWS // 2 :] = logits[ROWS // 2 :].bfloat16().float()
    masked = torch.rand(ROWS, vocabulary, generator=generator, device=device) < 0.5
    masked[:, 0] = False
    return logits.masked_fill(masked & (row % 3 == 2)[:, None], -math.inf)


def _allowed(variant, logits, min_p, to_spare):
    """Which tokens may be drawn in each row."""
    probabilities = logits.double().softmax(-1)
    if variant != "min_p":
        return probabilities > 0
    bound = min_p[:, None].double() * probabilities.amax(-1, keepdim=True) * (1 - to_spare)
    return (probabilities >= bound) & (probabilities > 0)


def _between_probabilities(logits):
    """For each row a min-p near the one that is wanted, in the middle between two shares of the largest probability."""
    import torch

    shares = (logits.double() - logits.double().amax(-1, keepdim=True)).exp().sort(-1).values
    middles = torch.cat((shares[:, :1] / 2, (shares[:, 1:] + shares[:, :-1]) / 2), dim=-1)
    wanted = torch.tensor(SMALL_MIN_PS, dtype=middles.dtype, device=middles.device)[:, None]
    return middles.gather(1, (middles - wanted).abs().argmin(-1, keepdim=True))[:, 0].float()


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
