"""Does flashinfer.sampling.softmax give the probabilities of each row, with one temperature, one for each row, or none?

Shapes: 1, 7 and 60 rows of 111, 50257 and 128256 logits (111 and 50257 are odd); rows of standard deviation 1 and 12,
some shifted by 80 or -80, where exp without the row's maximum overflows; in every third row half of the logits are
-inf, as a mask leaves them, and their probabilities must be exactly zero. Temperatures: none, 0.7, and for each row one
of 0.05, 0.7, 1 and 4. One call is captured in a CUDA graph and replayed three times with other logits.

Tolerance: relative 2^-15 and 2^-23 (|x| + |largest x of the row|) of x, a logit over its temperature. Each x is rounded
twice, by the division and with the factor log2 e, which errs by 2^-23 of it in what exp is taken of; ex2.approx errs by
2^-22; a thread adds up to 126 numbers, and a tree of 10 levels follows, 136 * 2^-24 < 2^-16. Probabilities below 2^-100
may be anything below 2^-99: there exp flushes to zero sooner or later. The reference is float64 from the same float32
logits.

Upstream: include/flashinfer/sampling.cuh (OnlineSoftmaxFusedKernel), flashinfer/sampling.py
"""

import importlib
import itertools
import math
import os
import sys

PROBE = {
    "id": "sampling.softmax",
    "feature": "sampling.softmax",
    "module": "sampling",
    "requires": {"sm": ">=75", "flashinfer": ">=0.5", "symbols": ["flashinfer.sampling.softmax"]},
    "variants": {
        "plain": {},
        "one_temperature": {},
        "temperature_of_each_row": {},
        "graph_temperature_of_each_row": {},
    },
    "gpus": 1,
    "timeout_s": 120,
    "build_timeout_s": 1200,
    "compiles": ["nvcc"],
    "checks": "numbers",
}

VOCABULARIES = (111, 50257, 128256)
BATCHES = (1, 7, 60)
TEMPERATURE = 0.7
TEMPERATURES = (0.05, 0.7, 1.0, 4.0)
WIDTHS = (1.0, 12.0)
SHIFTS = (0.0, 80.0, -80.0)
RELATIVE = 2.0**-15
ROUNDED = 2.0**-23  # of a logit over its temperature and of the largest of its row
TINY = 2.0**-100
REPLAYS = 3


def build(variant):  # noqa: ARG001 - one module serves every variant
    from flashinfer.sampling import get_sampling_module

    get_sampling_module()


def run(variant):
    found = _Found()
    if variant.startswith("graph_"):
        _check_graph(found)
        return found.measured()
    for rows, vocabulary in itertools.product(BATCHES, VOCABULARIES):
        logits = _logits(rows, vocabulary, seed=3)
        temperature = _temperature(variant, rows)
        kept = logits.clone()
        found.where = f"{rows} rows of {vocabulary}"
        found.compare(_call(logits, temperature), logits, temperature)
        assert logits.equal(kept), f"{found.where}: the logits were changed"
    return found.measured()


def _call(logits, temperature):
    import flashinfer.sampling

    return flashinfer.sampling.softmax(logits, temperature)


def _check_graph(found):
    logits, temperature = _logits(7, VOCABULARIES[1], seed=4), _temperature("temperature_of_each_row", 7)
    results = []
    replay = _capture(lambda: results.append(_call(logits, temperature)))
    for turn in range(REPLAYS):
        logits.copy_(_logits(7, VOCABULARIES[1], seed=5 + turn))
        temperature.copy_(temperature.roll(1))
        results[-1].fill_(math.nan)
        replay()
        found.where = f"replay {turn + 1} of a CUDA graph with other logits"
        found.compare(results[-1], logits, temperature)


def _logits(rows, vocabulary, seed):
    """Rows of two widths and three shifts, some with a mask."""
    import torch

    device = _device()
    generator = torch.Generator(device).manual_seed(seed)
    row = torch.arange(rows, device=device)
    width = torch.tensor(WIDTHS, device=device)[row % len(WIDTHS)]
    shift = torch.tensor(SHIFTS, device=device)[row // 2 % len(SHIFTS)]
    logits = torch.randn(rows, vocabulary, generator=generator, device=device) * width[:, None] + shift[:, None]
    masked = torch.rand(rows, vocabulary, generator=generator, device=device) < 0.5
    masked[:, seed % vocabulary] = False  # something is left in each row
    return logits.masked_fill(masked & (row % 3 == 2)[:, None], -math.inf)


def _temperature(variant, rows):
    import torch

    if variant == "plain":
        return None
    if variant == "one_temperature":
        return TEMPERATURE
    device = _device()
    return torch.tensor(TEMPERATURES, device=device)[torch.arange(rows, device=device) % len(TEMPERATURES)]


class _Found:
    """What the comparisons of a variant came to."""

    def __init__(self):
        self.where, self.calls, self.elements, self.worst = "", 0, 0, 0.0

    def compare(self, got, logits, temperature):
        import torch

        assert got.shape == logits.shape, f"{self.where}: shape {tuple(got.shape)}, expected {tuple(logits.shape)}"
        assert got.dtype == torch.float32, f"{self.where}: {got.dtype}, expected float32"
        wide = logits.double()
        if temperature is not None:
            wide = wide / (temperature.double()[:, None] if hasattr(temperature, "double") else temperature)
        expected = wide.softmax(-1)
        relative = RELATIVE + ROUNDED * (wide.abs() + wide.amax(-1, keepdim=True).abs())
        bound = relative * expected + torch.where(expected < TINY, 2 * TINY, 0.0)
        bound = torch.where(logits == -math.inf, 0.0, bound)
        error = (got.double() - expected).abs()
        share = torch.where(error == 0, 0.0, error / bound)
        wrong = ~(share <= 1)  # NaN is wrong
        if wrong.any():
            at = tuple(wrong.nonzero()[0].tolist())
            raise AssertionError(
                f"{self.where}: {int(wrong.sum())} of {wrong.numel()} elements are wrong, the first at {at}: got "
                f"{got[at].item():.6g}, expected {expected[at].item():.6g}"
            )
        self.calls += 1
        self.elements += got.numel()
        self.worst = max(self.worst, share.max().item())

    def measured(self):
        return {
            "calls": self.calls,
            "elements": self.elements,
            "wrong_elements": 0,
            "tolerance_rel": RELATIVE,
            "share_of_tolerance": self.worst,
        }


def _capture(call):
    """A function that replays the call from a CUDA graph; run before on a side stream, as torch wants it."""
    import torch

    if _device().type == "cpu":
        return importlib.import_module("flashinfer.sampling").stand_in_for_a_graph(call)
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
