"""Do top_p_renorm_probs, top_k_renorm_probs and top_k_mask_logits keep exactly the tokens that they should?

Shapes: 60 rows over vocabularies of 50257 (odd) and 128256 with every pairing of k = 1, 2, 50, 1000, all and p = 1,
0.95, 0.5, 0.1; half of the rows hold logits rounded to bf16, as models give them, which tie. A token must be kept when
fewer than k tokens are more probable than it (those that tie are alike), for top-p when these have less than p of the
mass by V 2^-24 at least, V being the size of the vocabulary; it must be dropped when they have more by as much. In
between the rounding of sums decides: FlashInfer 0.7 adds float32 numbers up with atomics, in any order and one by one,
and not always in the same (is_deterministic=False).

Tolerance: what is kept, relative, V 2^-24, because it is divided by such a sum. Masked logits are kept bit by bit, the
others are -inf; dropped probabilities are zero. The reference is float64.

Upstream: include/flashinfer/sampling.cuh (TopPRenormProbKernel, TopKRenormProbKernel, TopKMaskLogitsKernel),
flashinfer/sampling.py
"""

import math
import os
import sys

PROBE = {
    "id": "sampling.renorm",
    "feature": "sampling.renorm",
    "module": "sampling",
    "requires": {
        "sm": ">=75",
        "flashinfer": ">=0.5",
        "symbols": [
            "flashinfer.sampling.top_p_renorm_probs",
            "flashinfer.sampling.top_k_renorm_probs",
            "flashinfer.sampling.top_k_mask_logits",
        ],
    },
    "variants": {"top_p_renorm": {}, "top_k_renorm": {}, "top_k_mask": {}},
    "gpus": 1,
    "timeout_s": 120,
    "build_timeout_s": 1200,
    "compiles": ["nvcc"],
    "checks": "numbers",
}

VOCABULARIES = (50257, 128256)
TOP_KS = (1, 2, 50, 1000, None)  # None: the whole vocabulary
TOP_PS = (1.0, 0.95, 0.5, 0.1)
ROWS = 60
ROUNDOFF = 2.0**-24  # of float32; as often as there are tokens


def build(variant):  # noqa: ARG001 - one module serves every variant
    from flashinfer.sampling import get_sampling_module

    get_sampling_module()


def run(variant):
    elements = kept_tokens = 0
    worst = 0.0
    for vocabulary in VOCABULARIES:
        logits, k, p = _mixed_rows(vocabulary)
        given = logits if variant == "top_k_mask" else logits.softmax(-1)
        before = given.clone()
        got = _call(variant, given, k, p)
        where = f"vocabulary {vocabulary}"
        assert given.equal(before), f"{where}: the input was changed"
        assert got.shape == given.shape, f"{where}: shape {tuple(got.shape)}, expected {tuple(given.shape)}"
        share, count = _compare(variant, where, got, given, (k, p))
        worst, kept_tokens, elements = max(worst, share), kept_tokens + count, elements + got.numel()
    return {
        "elements": elements,
        "kept_tokens": kept_tokens,
        "wrong_elements": 0,
        "tolerance_rel": VOCABULARIES[-1] * ROUNDOFF,
        "share_of_tolerance": worst,
    }


def _call(variant, given, k, p):
    import flashinfer.sampling

    if variant == "top_p_renorm":
        return flashinfer.sampling.top_p_renorm_probs(given, p)
    if variant == "top_k_renorm":
        return flashinfer.sampling.top_k_renorm_probs(given, k)
    return flashinfer.sampling.top_k_mask_logits(given, k)


def _compare(variant, where, got, given, bounds):
    """The largest error as a share of what is allowed, and how many tokens were kept."""
    import torch

    must, may = _kept(variant, given, *bounds)
    kept = got != (-math.inf if variant == "top_k_mask" else 0.0)  # NaN counts as kept, and is no right number
    wrong = (must & ~kept) | (kept & ~may)
    if wrong.any():
        row = int(wrong.any(1).nonzero()[0])
        raise AssertionError(
            f"{where}: {int(wrong.sum())} tokens are kept or dropped and should not be, the first in row {row} with "
            f"k={int(bounds[0][row])} and p={float(bounds[1][row]):.4g}: {int(kept[row].sum())} tokens are kept, "
            f"of {int(must[row].sum())} to {int(may[row].sum())}"
        )
    if variant == "top_k_mask":
        assert got[kept].equal(given[kept]), f"{where}: a logit that is kept was changed"
        return 0.0, int(kept.sum())
    wide = given.double() * kept
    expected = wide / wide.sum(-1, keepdim=True)
    relative = given.shape[1] * ROUNDOFF
    share = torch.where(kept, (got.double() - expected).abs() / (relative * expected), 0.0)
    off = ~(share <= 1)
    if off.any():
        at = tuple(off.nonzero()[0].tolist())
        raise AssertionError(
            f"{where}: {int(off.sum())} of {int(kept.sum())} elements are wrong, the first at {at}: got "
            f"{got[at].item():.6g}, expected {expected[at].item():.6g}"
        )
    return share.max().item(), int(kept.sum())


def _kept(variant, given, k, p):
    """Which tokens must be kept, and which may."""
    import torch

    ordered, order = given.sort(dim=-1, descending=True)
    place = torch.arange(given.shape[1], device=given.device).expand_as(order)
    begins = torch.ones_like(order, dtype=torch.bool)
    begins[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
    heavier = torch.where(begins, place, 0).cummax(-1).values  # how many are more probable than each
    if variant != "top_p_renorm":
        must = may = (heavier < k[:, None]) & ((ordered > 0) | (variant == "top_k_mask"))
    else:
        values = ordered.double()
        mass = (values.cumsum(-1) - values).gather(1, heavier) / values.sum(-1, keepdim=True)
        bound, to_spare = p[:, None].double(), given.shape[1] * ROUNDOFF
        must, may = (mass < bound - to_spare) & (ordered > 0), mass < bound + to_spare
    return tuple(torch.zeros_like(one).scatter_(1, order, one) for one in (must, may))


def _mixed_rows(vocabulary):
    """Logits, k and p: narrow and wide distributions; the second half of the rows rounded to bf16, with ties."""
    import torch

    device = _device()
    generator = torch.Generator(device).manual_seed(5)
    width = torch.tensor([1.0, 4.0, 2.0], device=device)[torch.arange(ROWS, device=device) // 7 % 3]
    logits = torch.randn(ROWS, vocabulary, generator=generator, device=device) * width[:, None]
    logits[ROWS // 2 :] = logits[ROWS // 2 :].bfloat16().float()
    ks = [TOP_KS[row % len(TOP_KS)] or vocabulary for row in range(ROWS)]
    ps = [TOP_PS[row % len(TOP_PS)] for row in range(ROWS)]
    return logits, torch.tensor(ks, dtype=torch.int32, device=device), torch.tensor(ps, device=device)


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
