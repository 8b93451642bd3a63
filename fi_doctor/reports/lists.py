"""What `fi-doctor features`, `probes list` and `explain` list, as plain text."""

from __future__ import annotations

from fi_doctor.model import Feature, ProbeSpec
from fi_doctor.reports.text import clean, pack, wrap


def features(known: tuple[Feature, ...], width: int = 80) -> str:
    """Each feature with its title, what ranges of vLLM releases do with it, and the probes that decide it."""
    if not known:
        return "No features are known.\n"
    blocks = [_feature(feature, width) for feature in sorted(known, key=lambda feature: feature.id)]
    return "\n".join("\n".join(block) + "\n" for block in blocks)


def probes(specs: tuple[ProbeSpec, ...], width: int = 80) -> str:
    """Each probe with its feature, the JIT module that it builds, its question, and who brought it when not we."""
    if not specs:
        return "No probes are installed.\n"
    blocks = [_probe(probe, width) for probe in sorted(specs, key=lambda spec: spec.id)]
    return "\n".join("\n".join(block) + "\n" for block in blocks)


def explained(groups: dict[str, list[tuple[str, str]]], width: int = 80) -> str:
    """Ids under the title of their group, with the first sentence of what they mean; of groups without meanings ids."""
    blocks = []
    for title, entries in groups.items():
        lines = [f"{title}:"]
        bare = [name for name, meaning in entries if not meaning]
        lines += pack(bare, width, "  ", "  ") if bare else []
        for name, meaning in (entry for entry in entries if entry[1]):
            lines += wrap(f"{name}: {_first_sentence(meaning)}", width, "  ", "    ")
        blocks.append("\n".join(lines) + "\n")
    return "\n".join([*blocks, "More on each, and on a variant: fi-doctor explain ID\n"])


def counted(groups: dict[str, list[tuple[str, str]]], families: dict[str, int], width: int = 80) -> str:
    """What can be explained, on a page: how many ids there are of each kind, and how many faults of each family."""
    counts = [f"{len(entries):5}  {title}" for title, entries in groups.items()]
    faults = [f"{number:5}  {family}" for family, number in sorted(families.items())]
    ways = (
        ("fi-doctor explain FILE", "what a log tells ('-' reads stdin)"),
        ("fi-doctor explain ID", "what an id means; also a variable, flag or key of vLLM, FlashInfer or SGLang"),
        ("fi-doctor explain --list", "all ids"),
    )
    asked = [line for way, meaning in ways for line in wrap(f"{way}: {meaning}", width, "  ", "    ")]
    blocks = (asked, ["Ids, by kind:", *counts], ["Faults that logs tell, by family:", *faults])
    return "\n".join("\n".join(block) + "\n" for block in blocks)


def _first_sentence(text: str) -> str:
    return clean(text).partition(". ")[0].rstrip(".")


def _feature(feature: Feature, width: int) -> list[str]:
    lines = wrap(f"{feature.id}: {feature.title}", width, "", "  ")
    for use in feature.vllm:
        releases = f"vLLM {use.vllm}" if use.vllm else "any vLLM"
        if len(feature.vllm) > 1 and any(other.sm for other in feature.vllm):
            releases += f" on SM {use.sm}" if use.sm else " on the others"
        lines += wrap(f"{releases}: {use.use}", width, "  ", "    ")
    if feature.fallback:
        lines += wrap(f"without it: {feature.fallback}", width, "  ", "    ")
    return [*lines, *_packed("probes", feature.probes, width)]


def _probe(probe: ProbeSpec, width: int) -> list[str]:
    lines = [clean(probe.id), *wrap(probe.question, width, "  ", "    ")]
    facts = [f"feature {probe.feature}", f"builds {probe.module}" if probe.module else "builds nothing"]
    if probe.gpus != 1:
        facts.append(f"{probe.gpus} GPUs")
    if probe.origin != "fi-doctor":
        facts.append(f"from {probe.origin}")
    lines += pack(facts, width, "  ", "    ")
    return [*lines, *_packed("variants", tuple(probe.variants), width)]


def _packed(label: str, words: tuple[str, ...], width: int) -> list[str]:
    return pack(words, width, f"  {label}: ", "    ") if words else []
