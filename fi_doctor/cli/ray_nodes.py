"""The nodes of a Ray cluster, each with its report: what `fi-doctor fleet` merges where no folder is named."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fi_doctor.cli import emit, parse
from fi_doctor.cli.ray_options import AskedRay
from fi_doctor.cluster import connecting, rounds, worker
from fi_doctor.cluster.ray_grid import RayGrid
from fi_doctor.errors import CannotTellError, DataError, UsageError
from fi_doctor.fleet.reading import NodeReport
from fi_doctor.model import Depth
from fi_doctor.reports.files import data_of

if TYPE_CHECKING:
    from fi_doctor.fleet.merging import Fleet

_DRIVER_S = 120.0
_STATIC_S, _DEEP_S = 120.0, 3600.0


class RayNodes:
    """The reports as they come, what is to be said beside them, and the report of this place, the driver."""

    def __init__(self, asked: AskedRay, where: str | None = None) -> None:
        """where: the node on which vLLM is started, which has to be one that is asked."""
        self._asked, self._where = asked, where
        self._environments = {Path(path).name: _environment(path) for path in asked.environments}
        self._ask = _ask(asked, tuple(self._environments) or ("",))
        self.notes: list[str] = []
        self.left: list[NodeReport] = []  # who had not answered when `reports` was closed, or ended by a signal

    def reports(self) -> Generator[NodeReport]:
        """One for each node and runtime environment. What is open when this is closed is cancelled."""
        with grid(self._asked, self._environments) as found:
            if self._where is not None:
                rounds.check_name(self._where, found.nodes(), self._ask)
            made = rounds.Rounds(found, self._ask, teller(self._asked))
            self.notes = made.notes
            try:
                for answer in made.answers():
                    yield _of_node(answer)
            finally:
                self.left = list(map(_of_node, made.end()))


def fleet(asked: AskedRay, merge: Callable[..., Fleet], where: str | None, early: Callable[[Fleet], object]) -> Fleet:
    """What the nodes answer, merged. Where a signal ends it, what has come by then is given to `early`.

    where: the node on which vLLM is started; None: here.
    """
    taken: list[NodeReport] = []
    with driver() as here:
        nodes = RayNodes(asked, where)
        try:
            with contextlib.closing(nodes.reports()) as reports:
                for one in reports:
                    taken.append(one)  # noqa: PERF402 - what has come stays where the next one does not
            return merge(taken, driver=where or here.result(), notes=nodes.notes)
        except KeyboardInterrupt:
            if any(isinstance(one.found, bytes) for one in taken):
                said = "Ended by a signal: what had been answered by then"
                early(merge([*taken, *nodes.left], notes=[said, *nodes.notes]))
            raise


@contextlib.contextmanager
def driver() -> Iterator[Future[NodeReport]]:
    """The report of this process's own place, made meanwhile: here vLLM is started, and its variables are compared."""
    pool = ThreadPoolExecutor(1)
    try:
        yield pool.submit(_driver)
    finally:
        pool.shutdown(wait=False)  # where it is still at work, the command ends early, and its children with it


@contextlib.contextmanager
def grid(asked: AskedRay, environments: Mapping[str, Mapping[str, Any]] | None = None) -> Iterator[RayGrid]:
    """The cluster, entered; left again with all that runs there. Nodes that have not this fi-doctor are sent it."""
    with connecting.connected(asked.address) as ray:
        yield RayGrid(ray, is_installed=asked.is_installed, environments=environments or {})


def teller(asked: AskedRay) -> Callable[[str], None]:
    """Says a line of progress on stderr, unless it is to be quiet."""

    def tell(line: str) -> None:
        if not asked.quiet:
            emit.say(f"fi-doctor: {line}")

    return tell


def _of_node(answer: rounds.Answer) -> NodeReport:
    return NodeReport(answer.name, answer.found, identity=f"{answer.node.id} {answer.environment}")


def _driver() -> NodeReport:
    words = ("report", "--json", "--quiet", "--depth", "static")
    done = worker.run(words, script="", limit_s=_DRIVER_S, gpus=1, variables=())
    code, _, _, stdout, stderr, _, error = done
    if code == 0 and stdout:
        return NodeReport("driver", stdout)
    why = error or rounds.last_words(stderr)
    return NodeReport(
        "driver", CannotTellError("the driver's own check gave no report", why=why, todo="fi-doctor check")
    )


def _ask(asked: AskedRay, environments: tuple[str, ...]) -> rounds.Ask:
    depth = parse.choice(asked.depth, [one.value for one in Depth], "--depth")
    usual = _STATIC_S if depth == Depth.STATIC.value else _DEEP_S
    limit = usual if asked.node_timeout is None else parse.duration_s(asked.node_timeout, "--node-timeout")
    return rounds.Ask(
        words=asked.words,
        depth=depth,
        limit_s=limit,
        wait_s=parse.duration_s(asked.wait, "--wait"),
        takes_all=asked.takes_all,
        environments=environments,
        address=asked.address,
    )


def _environment(path: str) -> Mapping[str, Any]:
    """A runtime environment as `ray job submit --runtime-env` takes it."""
    import yaml

    try:
        found = yaml.safe_load(data_of(Path(path)).decode("utf-8"))
    except DataError as error:
        raise UsageError(f"--runtime-env {path}: {error.why}", todo="name a file that is there") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise DataError(f"--runtime-env {path} is not YAML", why=" ".join(str(error).split())) from error
    if not isinstance(found, dict):
        raise DataError(f"--runtime-env {path}: expected keys of Ray's runtime_env, got {type(found).__name__}")
    local = [key for key in ("working_dir",) if key in found and "://" not in str(found[key])]
    if local:
        raise UsageError(
            f"--runtime-env {path}: {local[0]} is a folder of this host, which Ray takes from whole jobs only",
            todo=f"leave {local[0]} out, or name it by a URI",
        )
    return found
