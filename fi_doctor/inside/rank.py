"""One rank of a check of collectives: what each rank gives is coded by its number, and every element is looked at.

    python rank.py port                 tells a free TCP port
    python rank.py '{"rank": 0, ...}'   is that rank; the keys are those of `main`

Each step is a line on stdout that begins with MARK, once when it begins and once when it is over, so that where a rank
stopped is known though it never ends. Everything else on stdout and stderr is what libraries say (NCCL's log).

Every number is an integer that float32 holds exactly (below 2^24), so that any order of adding gives the same: what
differs by anything is wrong. Outputs are NaN before the call. CUDA multicast is off: whoever starts this says so in the
environment. torch and the standard library only.
"""

from __future__ import annotations

import datetime as dt
import faulthandler
import json
import os
import socket
import sys
import textwrap
import time
from types import TracebackType
from typing import Any

MARK = "@fi-doctor-rank "
_EXACT = 1 << 24  # integers up to here are float32 numbers
_IMPORT_S = 110.0  # for torch, on a node that is busy
_LATER_S = 10.0  # a backend has its own limit; a step that outlasts it by this never ends


def main(plan: dict[str, Any]) -> None:
    """Run all steps of one rank.

    rank, world: numbers. host, port: where rank 0 listens. limit_s: for each step. elements: sizes, in float32.
    tp, pp: lists of lists of ranks: groups of one pipeline stage, and chains of those that hand over to each other.
    """
    with Step("import torch", _IMPORT_S):
        import torch
        import torch.distributed as dist

    devices = torch.cuda.device_count() if torch.cuda.is_available() else 0
    tell(kind="device", devices=devices, name=torch.cuda.get_device_name(0) if devices else "")
    Step.limit_s = plan["limit_s"] + _LATER_S
    limit = dt.timedelta(seconds=plan["limit_s"])
    with Step("gloo: all ranks meet"):
        address = f"tcp://{plan['host']}:{plan['port']}"
        dist.init_process_group("gloo", init_method=address, rank=plan["rank"], world_size=plan["world"], timeout=limit)
    Backend("gloo", "cpu", plan, torch).run()
    with Step("gloo: who has a GPU"):
        seen = torch.tensor([1 if devices else 0])
        dist.all_reduce(seen, op=dist.ReduceOp.MIN)
    if int(seen):
        torch.cuda.set_device(0)
        Backend("nccl", "cuda:0", plan, torch).run()
    tell(kind="end")
    os._exit(0)  # a process group that is taken down waits for others, who may have stopped


class Backend:
    """All groups of this rank over one backend."""

    def __init__(self, name: str, device: str, plan: dict[str, Any], torch: Any) -> None:
        self.name, self.device, self.torch, self.dist = name, device, torch, torch.distributed
        self.rank, self.elements = plan["rank"], plan["elements"]
        limit = dt.timedelta(seconds=plan["limit_s"])
        self.groups = []
        # Every rank makes all groups in one order, as torch asks for, and uses its own.
        for kind, members in [*(("tp", one) for one in plan["tp"]), *(("pp", one) for one in plan["pp"])]:
            if len(members) > 1:
                with Step(f"{name}: {kind} {'-'.join(map(str, members))}: the group"):
                    group = self.dist.new_group(members, backend=name, timeout=limit)
                if self.rank in members:
                    self.groups.append((kind, members, group))

    def run(self) -> None:
        """Each operation with each size."""
        for kind, members, group in self.groups:
            name = f"{self.name}: {kind} {'-'.join(map(str, members))}"
            for elements in self.elements:
                for operation in (self.all_reduce, self.all_gather if kind == "tp" else self.hand_over):
                    with Step(f"{name}: {operation.__name__} of {elements} elements") as step:
                        got, expected = operation(members, group, elements)
                        step.compare(got.cpu(), expected.cpu())

    def all_reduce(self, members: list[int], group: Any, elements: int) -> tuple[Any, Any]:
        """The sum over all, in place."""
        given = self._numbers(self.rank, members, elements)
        self.dist.all_reduce(given, group=group)
        return given, sum(self._numbers(one, members, elements) for one in members)

    def all_gather(self, members: list[int], group: Any, elements: int) -> tuple[Any, Any]:
        """What each gave, in the order of the ranks."""
        parts = [self._nothing(elements) for _ in members]
        self.dist.all_gather(parts, self._numbers(self.rank, members, elements), group=group)
        expected = [self._numbers(one, members, elements) for one in members]
        return self.torch.cat(parts), self.torch.cat(expected)

    def hand_over(self, members: list[int], group: Any, elements: int) -> tuple[Any, Any]:
        """Down a pipeline: each gets what the one before it gives."""
        place = members.index(self.rank)
        got = self._nothing(elements)
        if place > 0:
            self.dist.recv(got, src=members[place - 1], group=group)
        else:
            got = self._numbers(self.rank, members, elements)
        if place < len(members) - 1:
            self.dist.send(self._numbers(self.rank, members, elements), dst=members[place + 1], group=group)
        return got, self._numbers(members[max(place - 1, 0)], members, elements)

    def _nothing(self, elements: int) -> Any:
        return self.torch.full((elements,), float("nan"), device=self.device)

    def _numbers(self, rank: int, members: list[int], elements: int) -> Any:
        """What a rank gives: 1, 2, 3, ... over and over, times its number and one."""
        period = min(1021, _EXACT // sum(member + 1 for member in members))
        ramp = self.torch.arange(elements, dtype=self.torch.int64) % period + 1
        return (ramp * (rank + 1)).to(self.torch.float32).to(self.device)


class Step:
    """Tells when it begins, and how it ended; what it raises ends the rank, and so does its limit."""

    limit_s = 0.0

    def __init__(self, name: str, limit_s: float | None = None) -> None:
        self.name, self.wrong, self.since = name, "", 0.0
        self.limit_s = self.limit_s if limit_s is None else limit_s

    def __enter__(self) -> Step:  # noqa: PYI034 - Self is newer than the Python that may run this
        tell(kind="begun", step=self.name)
        self.since = time.monotonic()
        faulthandler.dump_traceback_later(self.limit_s, exit=True)  # also where a library holds the interpreter
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        del trace
        faulthandler.cancel_dump_traceback_later()
        seconds = round(time.monotonic() - self.since, 6)
        if kind is None:
            tell(kind="done", step=self.name, seconds=seconds, wrong=self.wrong)
            return
        words = textwrap.shorten(str(error), 500, placeholder=" ...")  # half of a secret may not look like one
        tell(kind="raised", step=self.name, seconds=seconds, error=f"{kind.__name__}: {words}")
        os._exit(1)

    def compare(self, got: Any, expected: Any) -> None:
        """Every element; NaN equals nothing."""
        bad = (~(got == expected)).nonzero().flatten()
        if len(bad):
            first = int(bad[0])
            self.wrong = (
                f"{len(bad)} of {len(expected)} elements are wrong, the first at {first}: got {float(got[first])}, "
                f"expected {float(expected[first])}"
            )


def tell(**what: Any) -> None:
    """One line, at once, whatever else is written there."""
    os.write(1, f"\n{MARK}{json.dumps(what)}\n".encode())


def port() -> None:
    """A port that is free now."""
    with socket.create_server(("", 0)) as server:
        tell(kind="port", port=server.getsockname()[1])


if __name__ == "__main__":
    own = os.path.dirname(os.path.realpath(__file__))  # noqa: PTH120 - as the survey
    sys.path[:] = [entry for entry in sys.path if os.path.realpath(entry) != own]  # modules here have names of others
    if sys.argv[1] == "port":
        port()
    else:
        main(json.loads(sys.argv[1]))
