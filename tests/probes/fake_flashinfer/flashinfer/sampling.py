# ruff: noqa: FBT002, PLR0917 - these are the signatures of FlashInfer
import torch

from flashinfer.faults import has
from flashinfer.graphs import stand_in_for_a_graph  # noqa: F401 - a probe asks for it here

FIRST = {}  # what a kernel gave first, and gives again


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
    places = k[:, None].long().clamp(max=weights.shape[1])
    last = weights.topk(int(places.max()), -1).values.gather(1, places - 1)
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


def softmax(logits, temperature=None, enable_pdl=None):
    scale = 1.0 if temperature is None or has("temperature_ignored") else temperature
    if torch.is_tensor(scale):
        scale = (scale[:1].expand_as(scale) if has("first_temperature_for_all") else scale)[:, None]
    scaled = logits / scale
    if not has("maximum_not_taken_off"):
        scaled = scaled - scaled.amax(-1, keepdim=True)
    weights = scaled.exp()
    if has("tail_dropped"):
        weights[:, weights.shape[1] - weights.shape[1] % 4 :] = 0
    result = weights / weights.sum(-1, keepdim=True)
    if has("mask_leaks"):
        result = result.clamp(min=1e-20)
    if has("one_element_off"):
        result[-1, -1] *= 1 + 4 * 2**-15
    if has("nan_element"):
        result[-1, 3] = float("nan")
    if has("last_row_dropped"):
        result[-1] = 0
    if has("input_changed"):
        logits[0, 0] += 1
    if has("stale_output"):
        result[0] = FIRST.setdefault("softmax", result[0].clone())
    return result


def top_p_renorm_probs(probs, top_p, is_deterministic=False):
    return _renormalised(probs, _top_p(probs, top_p))


def top_k_renorm_probs(probs, top_k, is_deterministic=False):
    return _renormalised(probs, _top_k(probs, top_k))


def top_k_mask_logits(logits, top_k):
    kept = _top_k(logits, top_k)
    if has("one_token_lost"):
        kept[5] &= kept[5].cumsum(-1) != 1
    result = torch.where(kept, logits, -torch.inf)
    if has("masked_with_zero"):
        result = torch.where(kept, logits, 0.0)
    if has("logit_changed"):
        result[7] = result[7].bfloat16().float() * (1 + 2**-9)
    return result


def _renormalised(probs, kept):
    if has("one_token_lost"):
        kept[5] &= kept[5].cumsum(-1) != 1
    weights = probs * kept
    result = weights if has("not_normalised") else weights / weights.sum(-1, keepdim=True)
    if has("one_element_off"):
        row = result[3]
        row[row.argmax()] *= 1 + 4 * 2**-14
    if has("nan_element"):
        result[2, 1] = float("nan")
    return result


def min_p_sampling_from_probs(probs, min_p, indices=None, deterministic=True, generator=None, check_nan=False):
    if has("min_p_ignored"):
        return _draw(probs, generator)
    if has("first_min_p_for_all"):
        min_p = min_p[:1].expand_as(min_p)
    largest = 1.0 if has("largest_ignored") else probs.amax(-1, keepdim=True)
    bound = min_p[:, None] * largest * (0.95 if has("min_p_too_small") else 1.0)
    return _draw(probs * (probs >= bound), generator)


def sampling_from_probs(probs, indices=None, deterministic=True, generator=None, check_nan=False):
    return _draw(probs.clamp(min=1e-4) if has("mask_leaks") else probs, generator)


def sampling_from_logits(logits, indices=None, deterministic=True, generator=None, check_nan=False):
    probs = logits.softmax(-1)
    return _draw(probs.clamp(min=1e-4) if has("mask_leaks") else probs, generator)


def chain_speculative_sampling(
    draft_probs,
    draft_token_ids,
    target_probs,
    maybe_output_accepted_token_num=None,
    maybe_output_emitted_draft_token_num=None,
    deterministic=True,
    generator=None,
):
    rows, drafts, _ = draft_probs.shape
    ids = draft_token_ids.long()
    p = draft_probs.gather(2, ids[:, :, None])[:, :, 0]
    q = target_probs[:, :-1].gather(2, ids[:, :, None])[:, :, 0]
    if has("bonus_from_draft_place"):
        target_probs = torch.cat((target_probs[:, :-1], target_probs[:, -2:-1]), 1)
    accepts = _uniform(rows * drafts, generator).view(rows, drafts) * p < q * (1.1 if has("accepts_too_often") else 1)
    if has("always_accepts"):
        accepts = torch.ones_like(accepts)
    emitted = accepts.long().cumprod(1).sum(1)
    rest = torch.cat(((target_probs[:, :-1] - draft_probs).clamp(min=0), target_probs[:, -1:]), 1)
    if has("resamples_from_target"):
        rest = target_probs
    if has("resamples_from_draft_too"):
        rest[:, :-1] = (target_probs[:, :-1] - 0.9 * draft_probs).clamp(min=0)
    last = _draw(rest[torch.arange(rows), emitted], generator)
    place = torch.arange(drafts + 1).expand(rows, -1)
    out = torch.where(place < emitted[:, None], torch.cat((ids, ids[:, :1]), 1), -1)
    out = torch.where(place == emitted[:, None], last[:, None].long(), out).int()
    if has("padding_missing"):
        out = out.clamp(min=0)
    if has("draft_shifted"):
        out[-1, :drafts] = torch.where(place[-1, :drafts] < emitted[-1], ids[-1].roll(1), out[-1, :drafts])
    counts = []
    for given, new in (
        (maybe_output_accepted_token_num, accepts.sum(1)),
        (maybe_output_emitted_draft_token_num, emitted),
    ):
        held = torch.zeros(rows, dtype=torch.int32) if given is None or has("count_returned_apart") else given
        counts.append(held.copy_(new) if has("count_not_added") else held.add_(new.int()))
    if has("emitted_off_by_one"):
        counts[1] += 1
    return out, *counts
