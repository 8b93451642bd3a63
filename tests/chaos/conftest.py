"""The command is forked as in tests/cli."""

import pathlib
import sys

sys.path.append(str(pathlib.Path(__file__).parents[1] / "cli"))
