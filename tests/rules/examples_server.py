"""Examples of the rules on a process that serves."""

from __future__ import annotations

import factory as make
import serving
from rule_examples import Example

from fi_doctor.model import LoadedLibrary


def _libraries(*paths: str, deleted: bool = False):
    return serving.served(libraries=tuple(LoadedLibrary(name="cudart", path=path, deleted=deleted) for path in paths))


EXAMPLES: dict[str, Example] = {
    "server-runs-deleted-libraries": Example(
        fires=_libraries(f"{make.SITE}/nvidia/cu13/lib/libcudart.so.13", deleted=True),
        silent=_libraries(f"{make.SITE}/nvidia/cu13/lib/libcudart.so.13"),
    ),
    "server-loads-several-cuda-runtimes": Example(
        fires=_libraries("/opt/a/libcudart.so.12.8.90", "/opt/b/libcudart.so.13.0.96"),
        silent=_libraries("/opt/a/libcudart.so.13.0.48", "/opt/b/libcudart.so.13.0.96"),
    ),
    "server-has-files-of-its-own": Example(
        fires=serving.served(own_mounts=True, root="/proc/4711/root"),
        silent=serving.served(own_mounts=make.missing("/proc/4711/ns/mnt cannot be read: Permission denied")),
    ),
    "server-may-open-few-files": Example(
        fires=serving.served(limits={"Max open files": "1024 files"}),
        silent=serving.served(limits={"Max open files": "unlimited"}),
    ),
}
