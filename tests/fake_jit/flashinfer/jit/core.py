"""What is called of flashinfer/jit/core.py, with one ninja log for all modules (FAKE_LOG=shared) or one for each.

The sources of a module are the files $FAKE_SOURCES/<name>/*.cu, shell scripts that their compiler runs.
"""

import contextlib
import fcntl
import os
import subprocess
import time
import types
from pathlib import Path

FLASHINFER_JIT_DIR = Path(os.environ["FLASHINFER_WORKSPACE_BASE"], ".cache/flashinfer/0.7.2.post1/90a/cached_ops")
COMPILER = Path(__file__).with_name("compile.sh")
_entries = os.environ.get("FLASHINFER_CUDA_ARCH_LIST", "").split()
current_compilation_context = types.SimpleNamespace(
    TARGET_CUDA_ARCHS={(int(major), minor) for major, minor in (entry.split(".") for entry in _entries)}
)


class FileLock:
    """As filelock's."""

    def __init__(self, path, timeout=-1, thread_local=None):
        self._path, self._timeout = path, timeout

    def __enter__(self):
        self._fd = os.open(self._path, os.O_CREAT | os.O_RDWR)
        end = time.monotonic() + self._timeout
        while True:
            with contextlib.suppress(BlockingIOError):
                return fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if self._timeout >= 0 and time.monotonic() > end:
                os.close(self._fd)
                raise TimeoutError(self._path)
            time.sleep(0.02)

    def __exit__(self, *_):
        os.close(self._fd)


class JitSpec:
    """A module."""

    def __init__(self, name):
        self.name = name
        self.sources = sorted(Path(os.environ["FAKE_SOURCES"], name).glob("*.cu"))
        self.folder = FLASHINFER_JIT_DIR / name

    @property
    def ninja_path(self):
        return self.folder / "build.ninja"

    @property
    def lock_path(self):
        (FLASHINFER_JIT_DIR / "tmp").mkdir(parents=True, exist_ok=True)
        return FLASHINFER_JIT_DIR / "tmp" / f"{self.name}.lock"

    @property
    def is_aot(self):
        return self.name.startswith("aot_")

    def get_library_path(self):
        return COMPILER if self.is_aot else self.folder / f"{self.name}.so"

    def build(self, verbose, need_lock):
        shared = os.environ["FAKE_LOG"] == "shared"
        self.folder.mkdir(parents=True, exist_ok=True)
        place = Path("$name") if shared else self.folder
        objects = {f"{place}/{source.stem}.cuda.o": source for source in self.sources}
        lines = [
            f"rule cuda_compile\n  command = sh {COMPILER} -c $in -o $out",
            f"rule link\n  command = sh {COMPILER.with_name('link.sh')} -o $out $in",
        ]
        if os.environ.get("FAKE_COMPILER") == "c++":
            own, flags = Path(os.environ["FAKE_SOURCES"], self.name), os.environ.get("FAKE_FLAGS", "")
            lines = [
                f"cxx = c++\ncuda_cflags = -x c++ -fPIC -I{own} {flags}\nldflags = -shared",
                # nvcc writes the depfile before it compiles, and leaves it where it fails.
                "rule cuda_compile\n  depfile = $out.d\n  deps = gcc",
                "  command = $cxx $cuda_cflags -M -MT $out -MF $out.d $in && $cxx $cuda_cflags -c $in -o $out",
                "rule link\n  command = $cxx $in $ldflags -o $out",
            ]
        lines += [f"build {name}: cuda_compile {source}" for name, source in objects.items()]
        lines += [f"build {place}/{self.name}.so: link {' '.join(objects)}", f"default {place}/{self.name}.so\n"]
        text = "\n".join([f"name = {self.name}", *lines])
        keeps = "FAKE_KEEPS_NINJA_FILE" in os.environ  # as FlashInfer up to 0.6.11
        if not self.ninja_path.exists() or (not keeps and self.ninja_path.read_text() != text):
            self.ninja_path.write_text(text)
        run_ninja(FLASHINFER_JIT_DIR if shared else self.folder, self.ninja_path, verbose)

    def load(self, so_path=None):
        return Loaded(so_path or self.get_library_path())

    def build_and_load(self):
        if self.is_aot:
            return Loaded(COMPILER)
        with FileLock(self.lock_path):
            self.build(verbose=False, need_lock=False)
            return self.load()


class Loaded:
    """A library."""

    def __init__(self, path):
        self.path = path
        self.text = path.read_bytes()

    def run(self):
        return len(self.text)


def run_ninja(workdir, ninja_file, verbose, max_jobs=None):
    command = ["ninja", "-v", "-C", str(workdir), "-f", str(ninja_file), "-j", os.environ["MAX_JOBS"]]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        raise RuntimeError(f"Ninja build failed. Ninja output:\n{done.stdout}")
