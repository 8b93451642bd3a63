"""What Ray sends to workers as it is: nothing of ours can be imported there yet.

Each function is whole in itself, and is defined inside another one: Ray sends by its code what has no name to import.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

LACKING = "this very fi-doctor is not there"  # what `work` gives then, instead of how an order ended

_NEEDS = ("msgspec", "packaging", "typer", "yaml")
# For a process of its own: a folder is removed once stdin ends, as often as it takes while others still write there.
REMOVES = """
import os, shutil, sys, time
if os.fork():
    os._exit(0)
os.setsid()
sys.stdin.read()
for _ in range(20):
    shutil.rmtree(sys.argv[1], ignore_errors=True)
    if not os.path.exists(sys.argv[1]):
        break
    time.sleep(0.5)
"""


def work() -> Callable[..., Any]:
    """The function that carries out an order on a node.

    wanted: a word for the fi-doctor that is asked for; "": whichever is installed. machine: the kind of processor that
    what is sent is for. shipped: that, a list of one reference, so that only who lacks it fetches it; None: it was not
    sent. board: who is told that the order with this number begins; None: nobody. asked: arguments of `worker.run`.
    """
    lacking, looks, removes = LACKING, look(), REMOVES

    def work(wanted: str, machine: str, shipped: Any, board: Any, number: int, asked: dict[str, Any]) -> Any:  # noqa: PLR0913, PLR0917
        import sys  # noqa: PLC0415 - it runs elsewhere

        if wanted and "fi_doctor.cluster.worker" not in sys.modules and looks() != wanted:
            if shipped is None:
                return lacking
            import io  # noqa: PLC0415
            import os  # noqa: PLC0415
            import platform  # noqa: PLC0415
            import subprocess  # noqa: PLC0415
            import tempfile  # noqa: PLC0415
            import zipfile  # noqa: PLC0415

            import ray  # type: ignore[import-not-found] # noqa: PLC0415 # it is there

            if platform.machine() != machine:
                raise RuntimeError(
                    f"what was shipped is for {machine}, and this node is {platform.machine()}; install fi-doctor on "
                    "all nodes, then fi-doctor fleet --installed"
                )
            unpacked = tempfile.mkdtemp(prefix="fi-doctor-shipped-")
            # What removes it is begun first, and is no child of this worker: Ray kills the children of its workers.
            reading, _ = os.pipe()  # the other end is closed when this process is gone, however it went
            remover = subprocess.Popen([sys.executable, "-I", "-S", "-c", removes, unpacked], stdin=reading)
            os.close(reading)
            with zipfile.ZipFile(io.BytesIO(ray.get(shipped[0]))) as archive:
                archive.extractall(unpacked)
            remover.wait()  # what it leaves behind goes on
            sys.path.insert(0, unpacked)
        if board is not None:
            board.begin.remote(number)
        try:
            from fi_doctor.cluster import worker  # noqa: PLC0415
        except ModuleNotFoundError as error:
            others = "" if wanted else "; without --installed it is sent there"
            raise RuntimeError(f"fi-doctor is not installed in {sys.executable}: {error}{others}") from None
        return worker.run(**asked)

    return work


def look() -> Callable[[], str]:
    """The function that gives one word for the fi-doctor that an interpreter has, by names and sizes; "" for none."""
    needs = _NEEDS

    def look() -> str:
        import hashlib  # noqa: PLC0415 - it runs elsewhere
        import importlib.util as finding  # noqa: PLC0415
        import pathlib  # noqa: PLC0415

        if not all(map(finding.find_spec, needs)):
            return ""  # a checkout in the folder where the job was started, and not what it needs
        found = hashlib.sha256()
        for package in ("fi_doctor", "fi_doctor_probes"):
            spec = finding.find_spec(package)
            if spec is None or not spec.submodule_search_locations:
                return ""
            root = pathlib.Path(next(iter(spec.submodule_search_locations)))
            for path in sorted(root.rglob("*")):
                if path.suffix != ".pyc" and path.is_file():
                    found.update(f"{path.relative_to(root)} {path.stat().st_size}\n".encode())
        return found.hexdigest()

    return look


def board() -> type:
    """The class of the actor that is told what has begun."""

    class Board:
        def __init__(self) -> None:
            self.numbers: set[int] = set()

        def begin(self, number: int) -> None:
            self.numbers.add(number)

        def begun(self) -> set[int]:
            return self.numbers

    return Board
