"""The architectures that releases of vLLM have, from their unpacked files: writes knowledge/data/architectures.yaml.

    python benchmarks/architectures.py FOLDER...        folders that hold vllm/ of a release, named vllm-VERSION

Source: vllm/model_executor/models/registry.py, what _VLLM_MODELS puts together.
"""

import ast
import collections
import pathlib
import sys
import textwrap

from packaging.version import Version

DATA = pathlib.Path(__file__).parents[1] / "fi_doctor" / "knowledge" / "data" / "architectures.yaml"
HEADER = """\
# Which architectures the releases of vLLM that were read have: vllm/model_executor/models/registry.py, _VLLM_MODELS.
# Written by benchmarks/architectures.py. since, until: the first and the last of those releases that has them.
"""


def tables(source: str) -> dict[str, ast.Dict]:
    """The dictionaries of a module by their names."""
    found = {}
    for node in ast.parse(source).body:
        target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
        if isinstance(target, ast.Name) and isinstance(node.value, ast.Dict):
            found[target.id] = node.value
    return found


def names(source: str) -> set[str]:
    """What _VLLM_MODELS has."""
    found = tables(source)
    parts = [part.id for part in found["_VLLM_MODELS"].values if isinstance(part, ast.Name)]
    return {key.value for part in parts for key in found[part].keys if isinstance(key, ast.Constant)}


def write(folders: list[pathlib.Path]) -> None:
    """All of it anew."""
    file = "vllm/model_executor/models/registry.py"
    read = {folder.name.removeprefix("vllm-"): names((folder / file).read_text()) for folder in folders}
    releases = sorted(read, key=Version)
    ranges = collections.defaultdict(list)
    for name in sorted(set().union(*read.values())):
        having = [release for release in releases if name in read[release]]
        ranges[having[0], having[-1]].append(name)
    lines = []
    for since, until in sorted(ranges, key=lambda pair: (Version(pair[0]), Version(pair[1]))):
        lines += [f'- since: "{since}"', f'  until: "{until}"', "  names: ["]
        lines += [*textwrap.wrap(", ".join(ranges[since, until]), 116, initial_indent="    ", subsequent_indent="    ")]
        lines += ["  ]"]
    DATA.write_text(HEADER + "\n".join(lines) + "\n")


if __name__ == "__main__":
    write([pathlib.Path(word) for word in sys.argv[1:]])
