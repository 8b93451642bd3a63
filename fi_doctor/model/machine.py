"""The machine around the kernels: who serves, the folders that are written, the way to the network, driver files."""

from __future__ import annotations

from fi_doctor.model.base import Data, Missing


class User(Data, frozen=True):
    """The user who serves: this process's, that of --as-user, or that of the process of --pid."""

    uid: int
    gid: int
    groups: tuple[int, ...]  # besides gid
    name: str | Missing
    home: str  # the value of HOME
    found_by: str  # "this process", "--as-user 1000:0", "--pid 4711"
    is_own: bool  # whether it is the user of this process, so that the kernel can be asked
    overrides_modes: bool | Missing  # CAP_DAC_OVERRIDE: mode bits do not bind it


class Folder(Data, frozen=True):
    """A folder that FlashInfer writes, as the user who serves finds it."""

    # "jit-cache", "cutlass-sources", "cubins", "cubin-links", "deep-gemm", "tvm-ffi", "temporary"
    purpose: str
    path: str
    nearest: str | Missing  # the folder itself, or the nearest above it that exists
    owner: int | Missing  # of the nearest
    mode: str | Missing  # of the nearest, "0755"
    writable: bool | Missing
    why: str  # what decides it, in words
    blocked: tuple[str, ...]  # what lies there and that user cannot write, the first of them
    blocked_count: int
    mount: str | Missing  # where its file system is mounted
    filesystem: str | Missing  # "ext4", "overlay", "nfs4"
    read_only: bool | Missing
    noexec: bool | Missing
    free_mib: int | Missing  # for that user
    free_inodes: int | Missing
    quota: str | Missing  # what that user may still take, in words, where the kernel tells

    @property
    def exists(self) -> bool:
        """Whether the folder itself is there."""
        return self.nearest == self.path


class Network(Data, frozen=True):
    """What can be told of the way out without using it. Source: /proc/net/route, /proc/net/ipv6_route, variables."""

    default_route: bool | Missing
    proxies: tuple[str, ...]  # names of the proxy variables that are set
    # What keeps the installed FlashInfer from downloading, "FLASHINFER_NO_DOWNLOAD is set"; "" for nothing known.
    no_download: str
    repository_is_local: bool  # FLASHINFER_CUBINS_REPOSITORY names a folder


class DriverFiles(Data, frozen=True):
    """What a container is given of the driver. Source: /dev, and libcuda.so.1 as the dynamic linker finds it."""

    nodes: tuple[str, ...] | Missing  # "/dev/nvidia0", "/dev/nvidiactl", "/dev/nvidia-uvm"
    libcuda: str | Missing  # the file behind libcuda.so.1
    stub: str  # why that file is the toolkit's stub for linking; "" where it is none
    # Libraries of cuda-compat packages, in use or not: "/usr/local/cuda-13.0/compat/libcuda.so.580.95.05".
    compat: tuple[str, ...] = ()
    own_folder: str = ""  # where the driver's own libcuda.so.1 was found, whichever comes first; "" where it was not


class Machine(Data, frozen=True, tag_field="kind", tag="machine"):
    """All of it."""

    user: User
    folders: tuple[Folder, ...]
    network: Network
    driver_files: DriverFiles
    # Of the interpreter and its packages what another serving user surely cannot reach, each with the reason.
    unreachable: tuple[str, ...] = ()
    # As which user the interpreter, compilers and probes were started, where another user than this one was to serve;
    # Missing where it was this one all the same, with the reason; None where no other one was named.
    started_as: int | Missing | None = None

    def running_uid(self, ours: int) -> int:
        """As whom everything is started, where this process is of user `ours`."""
        return self.started_as if isinstance(self.started_as, int) else ours
