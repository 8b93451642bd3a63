"""Does chain_speculative_sampling accept, resample and pad as its law says, and count what it accepted?

The law, for given draft tokens x_i with draft probabilities p_i and target probabilities q_i: x_i is accepted with
min(1, q_i(x_i) / p_i(x_i)), the first that is not is replaced by a draw from max(q_i - p_i, 0), normalised, and ends
the row; where all are accepted a further token is drawn from the last q. What follows is -1. Counts are added to what
the tensors held; the first result is the draft token accepted or not at its place, so that emitted <= accepted <= n.

Allowed tokens: 20 rows over vocabularies of 111, 50257 (both odd) and 128256 with 1 and 5 draft tokens drawn from p,
among them rows where q equals p (everything is accepted), where q gives the first draft token nothing (never accepted),
where q is p but for the third (the first two are accepted), and where the rest of q - p is a single token.

Frequencies: 131072 rows of 37 tokens with 3 draft tokens that stay the same, counted by the place where the row ends
and by the token drawn there. Classes of less than 50 expected draws are taken together. The squared deviations over
the expectations add up to a chi-square variable, which must not exceed df + 2 sqrt(df t) + 2 t with t = 9 ln 10: a
right sampler exceeds it with probability 1e-9 at most (Laurent and Massart 2000, lemma 1). One seed gives the same
tokens twice, and calls that follow each other differ.

Upstream: include/flashinfer/sampling.cuh (ChainSpeculativeSampling), flashinfer/sampling.py
"""

import math
import os
import sys

PROBE = {
    "id": "sampling.chain_speculative",
    "feature": "sampling.chain_speculative",
    "module": "sampling",
    "requires": {
        "sm": ">=75",
        "flashinfer": ">=0.5",
        "symbols": ["flashinfer.sampling.chain_speculative_sampling"],
    },
    "variants": {"support": {}, "law": {}},
    "gpus": 1,
    "timeout_s": 120,
    "build_timeout_s": 1200,
    "compiles": ["nvcc"],
    "checks": "numbers",
}

VOCABULARIES = (111, 50257, 128256)
DRAFTS = (1, 5)
ROWS = 20
CALLS = 8
HELD = 7  # what the counts hold before the call
LAW_VOCABULARY, LAW_DRAFTS, LAW_ROWS, LAW_CALLS = 37, 3, 16384, 8
LEAST_EXPECTED = 50
LN_FALSE_ALARM = 9 * math.log(10)


def build(variant):  # noqa: ARG001 - one module serves every variant
    from flashinfer.sampling import get_sampling_module

    get_sampling_module()


def run(variant):
    return _check_law() if variant == "law" else _check_support()


def _call(inputs, generator, counts=(None, None)):
    import flashinfer.sampling

    draft, tokens, target = inputs
    return flashinfer.sampling.chain_speculative_sampling(
        draft,
        tokens,
        target,
        maybe_output_accepted_token_num=counts[0],
        maybe_output_emitted_draft_token_num=counts[1],
        deterministic=True,
        generator=generator,
    )


def _check_support():
    import torch

    generator = _generator(5)
    emitted_in_all = rows = 0
    for vocabulary in VOCABULARIES:
        for drafts in DRAFTS:
            draft, tokens, target = _rows(vocabulary, drafts, generator)
            kept = [one.clone() for one in (draft, tokens, target)]
            for _ in range(CALLS):
                accepted, emitted = (torch.full((ROWS,), HELD, dtype=torch.int32, device=draft.device) for _ in "ab")
                out, *counts = _call((draft, tokens, target), generator, (accepted, emitted))
                where = f"vocabulary {vocabulary}, {drafts} draft tokens"
                for one, given in zip(counts, (accepted, emitted), strict=True):
                    assert one.data_ptr() == given.data_ptr(), f"{where}: a count is not the tensor that was given"
                _check_rows(where, (draft, tokens, target), out, accepted - HELD, emitted - HELD)
                emitted_in_all, rows = emitted_in_all + int((emitted - HELD).sum()), rows + ROWS
            for one, before in zip((draft, tokens, target), kept, strict=True):
                assert one.equal(before), f"vocabulary {vocabulary}: an input was changed"
    return {"rows": rows, "emitted_draft_tokens": emitted_in_all, "vocabularies": " ".join(map(str, VOCABULARIES))}


def _check_rows(where, given, out, accepted, emitted):
    """What holds of every row, whatever was drawn."""
    import torch

    draft, tokens, target = given
    drafts = tokens.shape[1]
    assert tuple(out.shape) == (ROWS, drafts + 1), f"{where}: shape {tuple(out.shape)}"
    place = torch.arange(drafts + 1, device=out.device).expand_as(out)
    end = emitted[:, None].long()
    assert ((emitted >= 0) & (emitted <= accepted) & (accepted <= drafts)).all(), f"{where}: counts are impossible"
    padded = (out == -1) == (place > end)
    assert padded.all(), f"{where}: row {_first(~padded.all(1))} is not -1 behind its end, and only there"
    same = (out[:, :drafts] == tokens) | (place[:, :drafts] >= end)
    assert same.all(), f"{where}: row {_first(~same.all(1))} holds another token where the draft was accepted"
    last = out.gather(1, end).long()
    assert ((last >= 0) & (last < target.shape[2])).all(), f"{where}: a token that is none was drawn"
    rest = _rest(draft, target).gather(1, end[:, :, None].expand(-1, -1, target.shape[2]))[:, 0]
    drawn = rest.gather(1, last) > 0
    assert drawn.all(), f"{where}: row {_first(~drawn[:, 0])} drew a token to which the law gives nothing"
    row = torch.arange(ROWS, device=out.device) % 5
    sure = {0: emitted == drafts, 1: emitted == 0, 2: emitted >= min(2, drafts)}
    for kind, holds in sure.items():
        assert holds[row == kind].all(), f"{where}: a row of kind {kind} ended where it cannot"


def _check_law():
    import torch

    generator = _generator(6)
    draft, tokens, target = _rows(LAW_VOCABULARY, LAW_DRAFTS, generator)
    one = 3  # a row in which everything can happen
    inputs = [tensor[one : one + 1].repeat(LAW_ROWS, *[1] * (tensor.dim() - 1)) for tensor in (draft, tokens, target)]
    counts = torch.zeros((LAW_DRAFTS + 1) * LAW_VOCABULARY, dtype=torch.int64, device=draft.device)
    outputs = []
    for _ in range(LAW_CALLS):
        out, _, emitted = _call(inputs, generator)
        last = out.gather(1, emitted[:, None].long())[:, 0].long()
        assert int(last.min()) >= 0, "a row has no token at its end"
        counts += torch.bincount(emitted.long() * LAW_VOCABULARY + last, minlength=len(counts))
        outputs.append(out)
    expected = _law(draft[one], tokens[one], target[one]).flatten() * LAW_ROWS * LAW_CALLS
    squares, limit = _chi_square(counts, expected)
    assert not outputs[0].equal(outputs[1]), "two calls with one generator gave the same tokens"
    again = [_call(inputs, other)[0] for other in (_generator(8), _generator(8))]
    assert again[0].equal(again[1]), "two generators of one seed gave different tokens"
    return {"draws": LAW_ROWS * LAW_CALLS, "chi_square": squares, "chi_square_limit": limit}


def _law(draft, tokens, target):
    """The probability of each place of the end and each token there, in float64: [draft tokens + 1, vocabulary]."""
    import torch

    reached = torch.ones((), dtype=torch.float64, device=draft.device)
    classes = []
    for place, token in enumerate(tokens.tolist()):
        p, q = draft[place].double(), target[place].double()
        accept = torch.clamp(q[token] / p[token], max=1)
        rest = (q - p).clamp(min=0)
        classes.append(reached * (1 - accept) * rest / rest.sum())
        reached = reached * accept
    return torch.stack([*classes, reached * target[-1].double() / target[-1].double().sum()])


def _rest(draft, target):
    """What is drawn from at each place, not normalised."""
    import torch

    return torch.cat(((target[:, :-1] - draft).clamp(min=0), target[:, -1:]), dim=1)


def _rows(vocabulary, drafts, generator):
    """Draft probabilities, draft tokens and target probabilities; rows of five kinds in turn."""
    import torch

    device = generator.device

    def random(places):
        return torch.randn(ROWS, places, vocabulary, generator=generator, device=device).softmax(-1)

    draft, target = random(drafts), random(drafts + 1)
    tokens = torch.multinomial(draft.view(-1, vocabulary), 1, generator=generator).view(ROWS, drafts)
    row = torch.arange(ROWS, device=device) % 5
    target[row == 0, :-1] = draft[row == 0]
    nothing = target[row == 1]
    nothing[:, 0].scatter_(1, tokens[row == 1, :1], 0.0)
    target[row == 1] = nothing / nothing.sum(-1, keepdim=True)
    target[row == 2, : min(2, drafts)] = draft[row == 2, : min(2, drafts)]
    single = draft[row == 4].clone() * 0.5  # half of the mass goes to one token
    single[..., vocabulary // 2] += 0.5
    target[row == 4, :-1] = single
    return draft.contiguous(), tokens.to(torch.int32), target.contiguous()


def _chi_square(counts, expected):
    """The statistic and its limit, rare classes taken together; raises AssertionError above it."""
    import torch

    impossible = int(counts[expected == 0].sum())
    assert impossible == 0, f"{impossible} draws to which the law gives nothing"
    common = expected >= LEAST_EXPECTED
    rare = expected[~common].sum()
    counted, awaited = counts[common].double(), expected[common]
    if rare >= LEAST_EXPECTED:
        counted = torch.cat((counted, counts[~common].sum()[None].double()))
        awaited = torch.cat((awaited, rare[None]))
    squares = ((counted - awaited).square() / awaited).sum().item()
    freedom = len(awaited) - 1
    limit = freedom + 2 * math.sqrt(freedom * LN_FALSE_ALARM) + 2 * LN_FALSE_ALARM
    assert squares <= limit, (
        f"ends and tokens do not follow the law: chi-square {squares:.1f} with {freedom} degrees of freedom, "
        f"limit {limit:.1f}"
    )
    return squares, limit


def _first(rows):
    return int(rows.nonzero()[0])


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
