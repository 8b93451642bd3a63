"""Phrases that one stage writes and another one looks for."""

# Of a command of ninja's; inside/ninja.py, which imports nothing of ours, writes the same.
SILENT = "a command ended without a word, as one that is killed does"

# Of a tool that was asked for its version or its folders.
UNANSWERED = "did not answer"

# Of a row that the installed FlashInfer offers and no probe of ours is for: no run of fi-doctor settles it.
UNPROBED = "nothing here runs it"
