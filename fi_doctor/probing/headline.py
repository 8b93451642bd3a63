"""What comes first where not everything fits into the budget: what most servers stand or fall with. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fi_doctor.model import Depth, PlannedProbe

# In this order, then the rest. An expert layer ends the start of a server, attention ends every request.
HEADLINE = (
    "moe.fp8_block",
    "moe.mxfp4_bf16",
    "attention.prefill",
    "attention.decode",
    "attention.sinks",
    "comm.allreduce_fusion",
    "moe.bf16",
    "moe.fp8_per_tensor",
    "sampling.top_k_top_p",
    "gemm.fp8_block_sm90",
    "attention.fp8_kv",
)
PLACES = len(HEADLINE) + 1  # ranks below it: modules that decide rows
LAST = 2 * PLACES  # the rank of what comes after all others


def is_headline(feature: str) -> bool:
    """Whether servers stand or fall with it."""
    return feature in HEADLINE


def place(feature: str) -> int:
    """0 for what comes first; the same for all that is no headline."""
    return HEADLINE.index(feature) if is_headline(feature) else len(HEADLINE)


def ranks(members: Sequence[PlannedProbe], users: Mapping[str, Sequence[tuple[str, str]]]) -> dict[str, int]:
    """For each module (name -> probes and variants that need it) when it is to be built, the lowest first.

    Modules that deciding variants need stand before all others. Where it is not known which decide, the first half of
    the declared ones does: sizes that nobody offers are declared last. Within each half headline features come first.
    """
    when: dict[tuple[str, str], int] = {}
    some_run = any(probe.depth is Depth.RUN for probe in members)
    for probe in members:
        names = tuple(probe.spec.variants) or ("",)
        # What compiles and cannot run here (too few GPUs) has no verdict in the end, however early it is compiled.
        is_idle = some_run and probe.depth is Depth.BUILD
        for number, name in enumerate(names):
            late = name not in probe.deciding if probe.deciding else number >= (len(names) + 1) // 2
            late = late or is_idle
            when[probe.spec.id, name] = place(probe.spec.feature) + late * PLACES
    return {name: min((when.get(user, LAST) for user in needed), default=LAST) for name, needed in users.items()}
