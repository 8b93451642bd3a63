"""What NCCL, torch and a child of another node wrote reaches no output with a secret in it."""

import contextlib

import pytest
from fake_grid import ended, node
from test_collectives import Ranks, line, run

from fi_doctor.cluster import collectives, nccl, ranks
from fi_doctor.cluster.rounds import last_words
from fi_doctor.inside import rank as script
from fi_doctor.reports.collectives import FORMATS, render

SEEDS = ("hunter2pass", "plainsecret9", "hf_abcdefghijklmnopqrstuvwxyz012345", "heldsecret")
SAID = (
    "Call to connect failed http://user:hunter2pass@proxy.example.com:3128/x HF_TOKEN=plainsecret9"
    " NCCL_COOKIE=plainsecret9 hf_abcdefghijklmnopqrstuvwxyz012345 heldsecret"
)
WARNED = f"h:1:2 [0] NCCL WARN {SAID}\nh:1:2 [0] NCCL INFO NCCL version 2.28.9\n"


@pytest.fixture(autouse=True)
def _held(monkeypatch):
    monkeypatch.setenv("REGISTRY_PASSWORD", "heldsecret")


def leaked(text):
    return [seed for seed in SEEDS if seed in "".join(text.split())]  # the console breaks lines


class Failing(Ranks):
    """Each rank raises, or ends with, what tells secrets."""

    def __init__(self, *nodes, raises):
        super().__init__(*nodes)
        self.raises = raises

    def wait(self, timeout_s):
        [(ticket, result)] = super().wait(timeout_s)
        if ticket.order.words[0] == "port":
            return [(ticket, result)]
        text = line(kind="device", devices=0, name=SAID) + line(kind="begun", step=ranks.MEET)
        text += line(kind="raised", step=ranks.MEET, error=SAID) if self.raises else WARNED.encode()
        return [(ticket, ended(text, code=1, stderr=f"{'x' * 250} {SAID}".encode()))]


@pytest.mark.parametrize("form", FORMATS)
def test_logs_that_are_named_hold_none(form):
    text = render(collectives.of_logs([("n.log", WARNED)], 1, 2), form)
    assert "Call to connect failed http://<hidden>@proxy.example.com:3128/x" in " ".join(text.split())
    assert leaked(text) == []


@pytest.mark.parametrize("raises", [True, False], ids=["raised", "ended"])
@pytest.mark.parametrize("form", FORMATS)
def test_nor_does_what_ranks_wrote(form, raises):
    text = render(run(Failing(node("a"), node("b"), raises=raises)), form, width=400)
    assert "connect failed" in text
    assert leaked(text) == []


def test_a_warning_that_tells_none_stays_as_it_is():
    said = "Call to connect to 10.0.0.5<4242> failed: key 12, token 7 of /root/.token"
    done = collectives.of_logs([("n.log", f"h:1:2 [0] NCCL WARN {said}\n")], 1, 2)
    assert done.logs[0].warnings == (said,)


def test_the_last_words_of_a_child_are_hidden_before_they_are_cut():
    password = "hunter2pass" * 40
    assert "hunter2" not in last_words(f"error: http://user:{password}@host refused".encode())
    assert last_words(b"error: the host refused") == "error: the host refused"


def test_an_error_of_a_rank_is_cut_at_a_blank(monkeypatch, capfd):
    monkeypatch.setattr(script.os, "_exit", lambda code: None)
    for before in ("", "x" * 470):
        with contextlib.suppress(RuntimeError), script.Step("a", 60.0):
            raise RuntimeError(f"{before} http://user:hunter2pass@host refused {'y ' * 250}")
    short, cut = (said for said in capfd.readouterr().out.splitlines() if '"raised"' in said)
    assert "http://user:hunter2pass@host refused" in short  # it is hidden where ranks are read
    assert "xxx" in cut
    assert "user" not in cut


@pytest.mark.parametrize(("digits", "nodes"), [("9" * 5001, 0), ("16", 16), ("\u0663", 0)])
def test_a_number_without_end_is_none(digits, nodes):
    text = f"h:1:2 [0] NCCL INFO comm 0x1 rank 0 nRanks 2 nNodes {digits} localRanks 1"
    assert nccl.parse(text, "").nodes == nodes
