"""Phrases that one stage writes and another one looks for."""

# Of a command of ninja's; inside/ninja.py, which imports nothing of ours, writes the same.
SILENT = "a command ended without a word, as one that is killed does"

# Of a row that a lock does not hold.
NOT_LOCKED = "not in the lock, and not measured"

# Of a tool that was asked for its version or its folders.
UNANSWERED = "did not answer"
