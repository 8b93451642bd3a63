"""Workers: a thread for each task that waits for something; where the system gives none, who asks does it at once."""

from __future__ import annotations

import resource
import threading
from collections.abc import Callable
from concurrent.futures import Future
from types import TracebackType
from typing import ParamSpec, TypeVar

# A thread takes 8 MiB of address space for its stack and 64 for what it allocates, used or not. Twenty of them leave
# nothing of a small limit to anybody, and then what fails is any allocation.
_ROOM = 8 << 30

T = TypeVar("T")
P = ParamSpec("P")


class Workers:
    """Tasks may wait for those that were submitted before them, and for no others.

    ThreadPoolExecutor raises RuntimeError ("can't start new thread") under a limit of processes or of address space, as
    a container or `ulimit` sets it, and leaves the task behind.
    """

    def __init__(self) -> None:
        self._threads: list[threading.Thread] = []

    def submit(self, work: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """The task's future. Raises what is no Exception, such as KeyboardInterrupt, where the task has no thread."""
        future: Future[T] = Future()

        def run() -> None:
            try:
                result = work(*args, **kwargs)
            except BaseException as error:
                future.set_exception(error)
                if not isinstance(error, Exception) and threading.current_thread() is threading.main_thread():
                    raise  # a signal ends the command, and nobody asks this future any more
            else:
                future.set_result(result)

        thread = threading.Thread(target=run)
        try:
            _check_room()
            thread.start()
        except (RuntimeError, MemoryError):
            run()
        else:
            self._threads.append(thread)
        return future

    def wait(self) -> None:
        """Until all tasks are over."""
        for thread in self._threads:
            thread.join()

    def __enter__(self) -> Workers:  # noqa: PYI034 - typing has Self from Python 3.11 on
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.wait()


def _check_room() -> None:
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit != resource.RLIM_INFINITY and limit < _ROOM:
        raise MemoryError
