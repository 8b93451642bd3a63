# ruff: noqa: FBT002, PLR0917 - these are the signatures of FlashInfer
import torch

from flashinfer.faults import has


def get_sampling_module():
    return None


def top_k_top_p_sampling_from_logits(
    logits,
    top_k,
    top_p,
    indices=None,
    filter_apply_order="top_k_first",
    deterministic=True,
    generator=None,
    check_nan=False,
):
    probs = logits.softmax(-1)
    if filter_apply_order == "joint" or has("joint_instead"):
        return _draw(probs * (_top_k(probs, top_k) & _top_p(probs, top_p)), generator)
    first = probs * _top_k(logits, top_k)
    first = first / first.sum(-1, keepdim=True)
    return _draw(first * _top_p(first, top_p), generator)


def top_p_sampling_from_probs(probs, top_p, indices=None, deterministic=True, generator=None, check_nan=False):
    return _draw(probs * _top_p(probs, top_p), generator)


def top_k_sampling_from_probs(probs, top_k, indices=None, deterministic=True, generator=None, check_nan=False):
    return _draw(probs * _top_k(probs, top_k), generator)


def _top_k(weights, k):
    """Ties with the k-th are kept."""
    if has("top_k_ignored"):
        return torch.ones_like(weights, dtype=torch.bool)
    if has("first_k_for_all"):
        k = k[:1].expand_as(k)
    k = k + has("one_token_too_many")
    last = weights.sort(-1, descending=True).values.gather(1, k[:, None].long().clamp(max=weights.shape[1]) - 1)
    return weights > last if has("tie_lost") else weights >= last


def _top_p(probs, p):
    if has("top_p_ignored"):
        return torch.ones_like(probs, dtype=torch.bool)
    if has("first_p_for_all"):
        p = p[:1].expand_as(p)
    if has("top_p_too_large"):
        p = p + 0.02
    values = probs.sort(-1, descending=True).values
    kept = values.cumsum(-1) - values < p[:, None]
    return probs >= torch.where(kept, values, torch.inf).min(-1, keepdim=True).values


def _draw(weights, generator):
    """One token for each row, by inversion of the summed weights."""
    vocabulary = weights.shape[1]
    if has("skewed_by_5_percent"):
        weights = weights * (1 + 0.05 * (1 - 2 * (torch.arange(vocabulary) % 2)))
    if has("end_of_vocabulary_never"):
        weights = weights * (torch.arange(vocabulary) < vocabulary * 0.94)
        weights[:, 0] += 1e-30  # so that a row is never empty
    sums = weights.double().cumsum(-1)
    uniform = _uniform(len(weights), generator)[:, None] * sums[:, -1:]
    tokens = torch.searchsorted(sums, uniform, right=True)[:, 0].clamp(max=vocabulary - 1).int()
    if has("token_behind_vocabulary"):
        tokens[-1] = vocabulary
    if has("negative_token"):
        tokens[0] = -1
    if has("rare_stray_token"):
        tokens[7] = (tokens[7] + vocabulary // 2) % vocabulary
    return tokens[:-1] if has("last_row_lost") else tokens


def _uniform(rows, generator):
    if generator is None and has("restarts_without_generator"):
        generator = torch.Generator()
    if generator is not None and has("generator_ignored"):
        generator = None
    before = generator.get_state() if generator is not None else None
    numbers = torch.rand(rows, dtype=torch.float64, generator=generator)
    if generator is not None and has("generator_not_advanced"):
        generator.set_state(before)
    return numbers[:1].expand(rows) if has("rows_share_a_number") else numbers
