# ruff: noqa: FBT002, PLR0917 - these are the signatures of FlashInfer
import torch

from flashinfer.faults import has, seen_first


def get_rope_module():
    return None


def apply_rope_with_cos_sin_cache_inplace(positions, query, key, head_size, cos_sin_cache, is_neox=True):
    cache = cos_sin_cache.bfloat16().float() if has("cache_in_bf16") else cos_sin_cache
    at = _read(positions)
    cos, sin = cache[at].chunk(2, dim=-1)
    if has("cos_and_sin_swapped"):
        cos, sin = sin, cos
    if has("magnitude_dropped"):
        cos, sin = (part / (cos.square() + sin.square()).sqrt() for part in (cos, sin))
    heads = [tensor.view(tensor.shape[0], -1, head_size) for tensor in (query, key)]
    _rotate_both(heads, cos, sin, not is_neox)
    if has("cache_changed"):
        cos_sin_cache[0, 0] += 1
    return query if has("returns_query") else None


def apply_rope_pos_ids_inplace(q, k, pos_ids, rotary_dim=None, interleave=False, rope_scale=1, rope_theta=1e4):
    rotary = q.shape[-1] if rotary_dim is None else rotary_dim
    pairs = torch.arange(rotary // 2)
    if has("theta_ignored"):
        rope_theta = 1e4
    if has("scale_ignored"):
        rope_scale = 1
    frequencies = rope_theta ** (-2.0 * pairs / (q.shape[-1] if has("frequencies_of_whole_head") else rotary))
    angles = _read(pos_ids).float()[:, None] * (frequencies / rope_scale)
    if has("angles_in_bf16"):
        angles = angles.bfloat16().float()
    _rotate_both((q, k), angles.cos(), angles.sin(), interleave)
    return q if has("returns_query") else None


def _read(positions):
    positions = seen_first("graph_keeps_positions", positions)
    if has("position_off_by_one"):
        positions = (positions - 1).clamp(min=0)
    if has("positions_ignored"):
        positions = torch.arange(len(positions))
    if has("last_position_wrong"):
        positions = torch.cat((positions[:-1], positions[-1:] - 1))
    return positions


def _rotate_both(heads, cos, sin, interleave):
    if seen_first.often("graph_does_nothing"):
        return
    query, key = heads
    if has("sign_of_sin"):
        sin = -sin
    if has("other_style"):
        interleave = not interleave
    rotary = cos.shape[-1] * 2
    for tensor in (query,) if has("key_not_rotated") else (query, key):
        rows = len(tensor) - (has("last_token_lost") and tensor is query)
        count = tensor.shape[1] - (has("last_head_lost") and tensor is query)
        _rotate(tensor[:rows, :count, :rotary], cos[:rows, None], sin[:rows, None], interleave)
    if has("nan_element"):
        key[-1, -1, 5] = float("nan")
    if has("one_element_off"):
        query[-1, 0, 0] *= 1 + 2 * torch.finfo(query.dtype).eps
    if has("rest_changed"):
        query[0, 0, rotary:] += 1
    if has("written_before"):
        key.as_strided((1,), (1,), key.storage_offset() - 1)[:] += 1


def _rotate(x, cos, sin, interleave):
    before = seen_first("graph_keeps_input", x).float()
    half = x.shape[-1] // 2
    a, b = (before[..., ::2], before[..., 1::2]) if interleave else (before[..., :half], before[..., half:])
    first, second = a * cos - b * sin, b * cos + a * sin
    if has("written_before_read"):  # in place, and the first of a pair is read back
        second = b * cos + first.to(x.dtype).float() * sin
    if interleave:
        x[..., ::2], x[..., 1::2] = first.to(x.dtype), second.to(x.dtype)
    else:
        x[..., :half], x[..., half:] = first.to(x.dtype), second.to(x.dtype)
