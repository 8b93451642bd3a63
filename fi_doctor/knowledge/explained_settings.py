"""What the findings about settings mean that somebody wrote down, and the text behind one that may be recommended."""

from __future__ import annotations

from fi_doctor.knowledge.plain import wrapped
from fi_doctor.model import KnowledgeBase, Setting

EXPLAINED = {
    "setting-unknown": (
        "A variable or flag that the installed version does not have: it was in another release, is of a fork, or is "
        "misspelled. A variable is passed over in silence, from vLLM 0.17 on with a warning; of a flag vLLM says that "
        "it is unrecognized, and ends. Of vLLM's HTTP server only the names of its flags are known: one of them is "
        "passed over, one like no flag of the engine is told without a verdict. The fix has what this "
        "version takes instead."
    ),
    "setting-never-read": (
        "A variable that the installed version registers, so that it is taken without a warning, and that no file of "
        "the package reads: it has no effect."
    ),
    "setting-value-refused": (
        'The installed version cannot make a value of the text that is given: int() of "true" raises, or it is none '
        "of the words that are taken. It is an error where the server does not start with it, and a warning where the "
        "value counts as unset."
    ),
    "setting-means-otherwise": (
        'A value is taken, and is not what it looks like: "0" that counts as "1" because any text does, '
        '"true" that leaves it off because only "1" counts, or the default, which is not the same as leaving the '
        "variable unset where the source asks if it is set."
    ),
    "settings-contradict": (
        "Two settings of one process give two values to the same key: a variable and a flag, a flag that is given "
        "twice, or a manifest and --vllm-args. Only one of them can hold."
    ),
    "setting-of-a-modified-build": (
        "The installed files read this setting, and the release whose version they name does not: elsewhere, with the "
        "release itself, it has no effect."
    ),
    "settings-not-judged": (
        "Settings were given by --env-file, --manifest or --vllm-args, and it is not known what the installed version "
        "makes of them: it is not installed, or neither its release nor its files could be read."
    ),
    "vllm-variable-not-read": "Said of old; it is told as setting-unknown or setting-never-read now.",
    "vllm-variable-from-a-fork": "Said of old; it is told as setting-unknown now.",
}


def setting_text(kb: KnowledgeBase, setting: Setting) -> str:
    """What is known of a setting that may be recommended, as plain text, and what it selects."""
    kind = {"env": "variable", "flag": "flag"}.get(setting.kind, "key")
    owner = f"of {setting.owner} {setting.read_by}" if setting.read_by else f"that no release of {setting.owner} reads"
    parts = [f"{setting.name} ({kind} {owner})", wrapped(setting.what), *_selected(kb, setting.name)]
    return "\n\n".join([*parts, f"Known from: {setting.source}"]) + "\n"


def _selected(kb: KnowledgeBase, name: str) -> list[str]:
    """The rows that a setting turns on and off, and the rules that recommend it."""
    uses = [(feature.id, use) for feature in kb.features for use in feature.vllm]
    told = {
        "Turns on": [row for row, use in uses if any(action.setting == name for action in use.enable)],
        "Turns off": [row for row, use in uses if any(action.setting == name for action in use.avoid)],
        "Keeps out of CUDA graphs": [
            one.id for one in kb.features if any(action.setting == name for action in one.uncaptured)
        ],
        "Is what helps in": [rule.id for rule in kb.rules if any(action.setting == name for action in rule.fix)],
    }
    return [wrapped(f"{what}: {', '.join(dict.fromkeys(words))}") for what, words in told.items() if words]
