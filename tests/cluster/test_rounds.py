import pytest
from fake_grid import REPORT, FakeGrid, ended, node

from fi_doctor.cluster import rounds
from fi_doctor.cluster.grid import Lost, named
from fi_doctor.cluster.rounds import Ask, Rounds
from fi_doctor.errors import CannotTellError, DoctorError, UsageError


@pytest.fixture(autouse=True)
def _no_grace(monkeypatch):
    monkeypatch.setattr(rounds, "GRACE_S", 0.0)


def told(grid, **asked):
    said = []
    made = Rounds(grid, Ask(words=("--feature", "norm.*"), **asked), said.append)
    return {answer.name: answer for answer in made.answers()}, made.notes, said


def test_every_gpu_node_is_read_without_a_gpu_and_without_a_cpu():
    grid = FakeGrid(node("a"), node("b"))
    answers, notes, said = told(grid)
    assert {name: answer.found for name, answer in answers.items()} == {"a": REPORT, "b": REPORT}
    assert notes == []
    assert said == ["a: answered after 2.0 s (1 of 2)", "b: answered after 2.0 s (2 of 2)"]
    for order in grid.orders:
        assert order.words == ("report", "--json", "--quiet", "--feature", "norm.*", "--depth", "static")
        assert (order.gpus, order.cpus) == (0, 0)


def test_what_is_open_is_cancelled_and_told_of_each():
    grid = FakeGrid(node("a"), node("b"), never=("b",))
    made = Rounds(grid, Ask(words=()), [].append)
    answers = made.answers()
    assert next(answers).name == "a"
    (left,) = made.end()
    assert (left.name, str(left.found.what)) == ("b", "it had not answered yet")
    assert grid.cancelled == ["b"]
    assert made.end() == []


def test_a_deeper_depth_asks_for_one_gpu():
    grid = FakeGrid(node("a"))
    told(grid, depth="run")
    assert [order.gpus for order in grid.orders] == [1]


def test_a_node_without_a_gpu_is_named_and_passed_over():
    answers, notes, _ = told(FakeGrid(node("a"), node("head", gpus=0)))
    assert list(answers) == ["a"]
    assert notes == ["passed over, without a GPU: head (--all-nodes checks them, too)"]


def test_a_node_without_a_gpu_is_checked_where_that_is_asked_for():
    answers, notes, _ = told(FakeGrid(node("a"), node("head", gpus=0)), takes_all=True)
    assert list(answers) == ["a", "head"]
    assert notes == []


def test_a_cluster_without_a_gpu_cannot_be_told_of():
    with pytest.raises(CannotTellError, match="has a GPU") as error:
        told(FakeGrid(node("head", gpus=0)))
    assert "--all-nodes" in error.value.todo


def test_one_node_that_dies_costs_its_own_row():
    answers, _, said = told(FakeGrid(node("a"), node("b"), results={"b": Lost("its node died", "preempted")}))
    assert answers["a"].found == REPORT
    assert isinstance(answers["b"].found, DoctorError)
    assert (answers["b"].found.what, answers["b"].found.why) == ("its node died", "preempted")
    assert said[1] == "b: its node died (2 of 2)"


def test_a_node_that_was_dead_before_is_named_and_not_asked():
    answers, notes, _ = told(FakeGrid(node("a"), node("b", alive=False, why="idle")))
    assert list(answers) == ["a"]
    assert notes == ["1 node of the cluster, and not checked, dead: b (idle)"]


def test_a_node_that_joins_meanwhile_is_checked_and_named():
    grid = FakeGrid(node("a"), node("b"), joins=[node("c")])
    answers, notes, _ = told(grid)
    assert sorted(answers) == ["a", "b", "c"]
    assert notes == ["joined meanwhile: c"]


def test_a_node_that_never_answers_is_given_up_and_the_others_are_kept():
    grid = FakeGrid(node("a"), node("b"), never=["b"])
    answers, _, _ = told(grid, limit_s=0.0)
    assert answers["a"].found == REPORT
    assert answers["b"].found.what == "it did not answer within 0 s"
    assert answers["b"].found.why == "nor in 0 s more, for a worker of Ray's to start; the node is still up"
    assert grid.cancelled == ["b"]


@pytest.mark.parametrize(
    ("name", "what", "todo"),
    [
        ("nobody", "there is no node 'nobody'", "--driver NODE"),
        ("gone", "there is no node 'gone'", "--driver NODE"),
        ("a", "there is no node 'a'", "--driver NODE"),  # it is asked in a runtime environment only
        ("head", "head has no GPU and is passed over", "--all-nodes"),
    ],
)
def test_a_driver_that_is_not_asked_is_refused_with_the_names_of_those_that_are(name, what, todo):
    nodes = (node("a"), node("b"), node("head", gpus=0), node("gone", alive=False))
    with pytest.raises(UsageError, match=what) as error:
        rounds.check_name(name, nodes, Ask(words=(), environments=("x.yaml",)))
    assert error.value.why == "nodes that are asked: a (x.yaml), b (x.yaml)"
    assert todo in error.value.todo


def test_a_driver_that_is_asked_is_taken():
    nodes = (node("a"), node("head", gpus=0))
    rounds.check_name("a", nodes, Ask(words=()))
    rounds.check_name("head", nodes, Ask(words=(), takes_all=True))
    rounds.check_name("a (x.yaml)", nodes, Ask(words=(), environments=("x.yaml",)))


def test_who_waits_for_a_gpu_too_long_is_only_read(monkeypatch):
    monkeypatch.setattr(rounds, "_TELL_S", -1.0)
    grid = FakeGrid(node("a"), has_begun=False)
    answers, notes, said = told(grid, depth="run", wait_s=0.0)
    assert answers["a"].found == REPORT
    assert notes == ["a: depth run was not reached: no GPU came free within 0 s"]
    assert grid.cancelled == ["a"]
    assert [order.words[-1] for order in grid.orders] == ["run", "static"]
    assert said == ["a: answered after 2.0 s (1 of 1)"]


def test_who_waits_is_named_with_what_is_free(monkeypatch):
    grid = FakeGrid(node("a"))
    ticket = grid.start(node("a"), rounds.Order(words=(), limit_s=1, gpus=1))
    assert rounds.waiting([ticket], grid.free_gpus()) == "waiting for one GPU each: a (0 of 1 free)"
    assert rounds.waiting([ticket], {}) == "waiting for one GPU each: a"


def test_each_runtime_environment_is_a_check_of_its_own():
    answers, _, _ = told(FakeGrid(node("a")), environments=("old.yaml", "new.yaml"))
    assert list(answers) == ["a (old.yaml)", "a (new.yaml)"]


@pytest.mark.parametrize(
    ("result", "what", "why"),
    [
        (
            ended(b"", code=2, stderr=b"error: no such\n model"),
            "ended with code 2 and no report",
            "error: no such model",
        ),
        (ended(b"", code=None, signal=9), "ended with signal 9 and no report", ""),
        (ended(b"", code=None, error="/x: No such file"), "could not be started", "/x: No such file"),
        (ended(b"", code=None, timed_out=True), "did not end within 120 s", "it said nothing"),
        (
            ended(b"", code=None, signal=9, timed_out=True, error="it was stopped"),
            "signal 9 and no report",
            "it was stopped",
        ),
    ],
    ids=["refused", "killed", "not started", "late", "stopped"],
)
def test_a_child_without_a_report_is_told_by_its_own_words(result, what, why):
    answers, _, _ = told(FakeGrid(node("a"), results={"a": result}))
    assert what in answers["a"].found.what
    assert answers["a"].found.why == why


def test_nodes_with_one_name_are_told_apart():
    rows = [("abcdef01", "vm", "10.0.0.1"), ("0123456789", "vm", "10.0.0.1"), ("ffff", "", "10.0.0.2")]
    assert named(rows) == {"abcdef01": "vm-abcdef", "0123456789": "vm-012345", "ffff": "10.0.0.2"}
