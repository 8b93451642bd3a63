"""Inputs made of others: bytes, lines and values of JSON are taken out, doubled, swapped and put in."""

from __future__ import annotations

import json
import random

# What parsers stumble over: ends of ranges, digits without end, nesting, what is no text.
WORDS = (
    b"", b"\0", b"\xff\xfe", b"\xed\xb2\x80", b"\x1b]0;x\x07", b"9" * 5000, b"-1", b"1e999", b"NaN", b"[" * 2000,
    b"{" * 2000, b'{"a":' * 1500, b"(" * 500, b"\xc2\xb2", b"\xd9\xa3", b"\r", b"\n\n", b"\t", b" - ", b"=", b"'", b'"',
    b"&a", b"*a", b"<<: *a",
    b"!!python/object:os.system", b"../" * 20, b"${A}", b"%s", b"%00", b"\x85", b"\xe2\x80\xa8",
    b"null", b"true", b"[]", b"{}", b"4294967296", b"18446744073709551616", b"-9223372036854775809",
)  # fmt: skip
_VALUES = (
    None,
    True,
    -1,
    0,
    2**63,
    2**64,
    10**400,
    1e308,
    float("inf"),
    "",
    "x" * 300,
    "\ud800",
    "\0",
    [],
    {},
    [[]],
    {"": {}},
)


def tried(parser, data):
    """Read it; only what the parser names as an answer may be raised."""
    try:
        parser.read(data)
    except parser.allowed:
        return


def mutated(seeds):
    """Inputs near these."""
    from hypothesis import strategies as st

    return st.builds(changed, st.sampled_from(seeds), st.integers(0, 2**32 - 1))


def changed(data, seed):
    """The input after some changes, the same for the same seed."""
    chance = random.Random(seed)
    if chance.random() < 0.5 and (other := _in_json(data, chance)) is not None:
        return other
    for _ in range(chance.choice((1, 1, 2, 4, 8))):
        data = chance.choice(_WAYS)(data, chance)
    return data[: 1 << 17]


def _cut(data, chance):
    one, other = _two(data, chance)
    return data[:one] + data[other:]


def _doubled(data, chance):
    one, other = _two(data, chance)
    return data[:other] + data[one:other] * chance.choice((1, 2, 20)) + data[other:]


def _put_in(data, chance):
    at = chance.randrange(len(data) + 1)
    return data[:at] + chance.choice(WORDS) + data[at:]


def _put_over(data, chance):
    one, other = _two(data, chance)
    return data[:one] + chance.choice(WORDS) + data[other:]


def _flipped(data, chance):
    if not data:
        return data
    whole = bytearray(data)
    for _ in range(chance.choice((1, 3))):
        whole[chance.randrange(len(whole))] = chance.randrange(256)
    return bytes(whole)


def _shuffled(data, chance):
    lines = data.split(b"\n")
    chance.shuffle(lines)
    return b"\n".join(lines)


_WAYS = (_cut, _doubled, _put_in, _put_over, _flipped, _shuffled)


def _two(data, chance):
    one = chance.randrange(len(data) + 1)
    return one, min(len(data), one + chance.choice((1, 2, 8, 64)))


def _in_json(data, chance):
    """The same document with another value at some place; None where it is none."""
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        return None
    node = document
    for _ in range(chance.randrange(1, 9)):
        keys = list(node) if isinstance(node, dict) else list(range(len(node))) if isinstance(node, list) else []
        if not keys:
            break
        key = chance.choice(keys)
        if chance.random() < 0.4 or not isinstance(node[key], dict | list):
            _alter(node, key, chance)
            break
        node = node[key]
    return json.dumps(document).encode()


def _alter(node, key, chance):
    match chance.randrange(4):
        case 0 if isinstance(node, dict):
            del node[key]
        case 1 if isinstance(node, dict):
            node[f"{key}x"] = node[key]
        case 2 if isinstance(node, list):
            node.append(node[key])
        case _:
            node[key] = chance.choice(_VALUES)
