"""A probe's source without what its functions do, which its description does not need and parsing mostly costs."""

from __future__ import annotations

_BEGINS = ("def ", "async def ", "class ")


def without_bodies(text: str) -> str:
    """The source with every top-level def and class reduced to `pass`, its other lines where they were.

    Told by indentation alone, so a text that spans lines and reaches the margin inside a function misleads it: for
    files that are known to have none.
    """
    lines: list[str] = []
    is_head = is_body = False
    for line in text.split("\n"):
        if not is_head and line[:1] not in ("", " ", "\t", "\r"):
            is_body = False
            is_head = line.startswith(_BEGINS) and not _is_whole(line)
        lines.append("" if is_body else line)
        if is_head and line.rstrip().endswith(":"):
            lines[-1] = f"{line} pass"
            is_head, is_body = False, True
    return "\n".join(lines)


def _is_whole(line: str) -> bool:
    """Whether the definition has its body on this line."""
    return not line.rstrip().endswith(":") and line.count("(") == line.count(")")
