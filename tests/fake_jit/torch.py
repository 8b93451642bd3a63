"""Stands for torch: no GPU, and quick to import. FAKE_IMPORTS names a file that counts, FAKE_STACK a fault."""

import os
import pathlib
import sys
import threading
import time
import types

__version__ = "0"
cuda = types.SimpleNamespace(is_initialized=lambda: False)
if "FAKE_IMPORTS" in os.environ:
    with pathlib.Path(os.environ["FAKE_IMPORTS"]).open("a") as file:
        file.write(f"{os.getpid()}\n")
    time.sleep(0.3)
if os.environ.get("FAKE_STACK") == "unfit" and "template.py" in sys.argv[0]:
    threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
