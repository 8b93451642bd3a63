"""Phrases that one stage writes and another one looks for."""

# Of what works and was compared, and of what is known of a part of a module alone.
AGREES = "numbers agree with the reference"
IN_PART = "; only a part of the module was compiled"

# Of a command of ninja's; inside/ninja.py, which imports nothing of ours, writes the same.
SILENT = "a command ended without a word, as one that is killed does"

# Between why something is not known and the command that settles it.
REMEDY = "; settle it with: "
# Of a probe that is to compare numbers and returned.
UNCOMPARED = "its probe names nothing that it compared"
# Of a row that a lock does not hold.
NOT_LOCKED = "not in the lock, and not measured"

# Of a tool that was asked for its version or its folders.
UNANSWERED = "did not answer"

# Of a row that the installed FlashInfer offers and no probe of ours is for: no run of fi-doctor settles it.
UNPROBED = "nothing here runs it"
_LONGEST_REMEDY = 1000  # characters; a longer one is none of ours
_LEAST = 60  # characters of a reason that stay whatever follows it


def short(text: str, limit: int = 200) -> str:
    """The text on one line; what is over `limit` characters is cut at a space, and before the remedy, never in it."""
    line = " ".join(text.split())
    if len(line) <= limit:
        return line
    said, remedy = parted(line)
    room = max(limit - len(remedy), _LEAST)
    if len(said) > room:
        begin = said[: room - 3]
        said = f"{begin.rpartition(' ')[0] or begin}..."
    return said + remedy


def parted(text: str) -> tuple[str, str]:
    """A reason, and the remedy at its end with what comes before it; "" where there is none."""
    said, found, remedy = text.rpartition(REMEDY)
    if not found or len(remedy) > _LONGEST_REMEDY:
        return text, ""
    return said, found + remedy
