"""What the template and the harness ask of torch. FAKE_STACK names faults, FAKE_IMPORTS a file that counts."""

import os
import pathlib
import sys
import threading
import time
import types

__version__ = "2.0"

if "FAKE_IMPORTS" in os.environ:
    with pathlib.Path(os.environ["FAKE_IMPORTS"]).open("a") as file:
        file.write(f"{os.getpid()}\n")

_faults = os.environ.get("FAKE_STACK", "").split()
_asked = []  # each question to CUDA spoils the forks


def _ask(answer):
    _asked.append(answer)
    return answer


cuda = types.SimpleNamespace(
    is_initialized=lambda: "cuda" in _faults,
    _is_in_bad_fork=lambda: bool(_asked) or "bad-fork" in _faults,
    is_available=lambda: _ask(True),  # noqa: FBT003
    device_count=lambda: _ask(2),
    get_device_capability=lambda device=None: _ask((9, 0)),
    synchronize=lambda: None,
    current_device=lambda: 0,
    get_device_properties=lambda index: types.SimpleNamespace(name="fake", major=9, minor=0),
)
if "device" in _faults:
    opened = os.openpty()
if "thread" in _faults:
    threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
if "slow" in _faults:
    time.sleep(60)
if "raises" in _faults:
    raise ImportError("libcudart.so.13: cannot open shared object file")
if "dies" in _faults and "template.py" in sys.argv[0]:
    os.abort()
if "flood" in _faults:
    sys.stdout.write("x" * (1 << 20))
sys.stderr.write("torch warns\n")
os.environ["SET_BY_TORCH"] = "yes"
