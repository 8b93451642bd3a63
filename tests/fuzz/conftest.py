"""The samples of reports are those of their own tests."""

import pathlib
import sys

sys.path.append(str(pathlib.Path(__file__).parents[1] / "reports"))
