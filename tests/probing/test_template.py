"""Probes in processes that a template forked: they end as those in fresh interpreters do, and nothing is left."""

import os
import re
import subprocess
import sys
import tempfile
import threading
import time
import types
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import machine_samples
import pytest
import test_run
from msgspec.structs import replace
from test_run import (  # noqa: F401 - the same claims about the same fakes, with another `everything`
    EXPECTED,
    test_a_dead_variant_leaves_the_others_to_a_fresh_process,
    test_a_failed_import_is_told_of_every_variant,
    test_an_assertion_elsewhere_or_while_building_is_no_wrong_number,
    test_each_failure_has_its_own_ending,
    test_each_way_of_leaving_is_told,
    test_every_fake_is_expected,
    test_measurements_are_plain_values,
    test_no_process_is_left,
    test_stacks_are_printed_before_a_hang_is_ended,
    test_the_first_call_of_a_lazily_compiled_kernel_counts_as_the_build,
    test_the_harness_folder_is_not_importable,
    test_the_last_words_of_a_flood_are_kept,
)

from fi_doctor import processes
from fi_doctor.model import Depth, Ending, Gpu, GpuFacts, Missing, PlannedProbe, Requires
from fi_doctor.probing import catalog, template
from fi_doctor.probing.attempt import try_probe
from fi_doctor.probing.bench import Bench, Cancelled

STACK = Path(__file__).parent / "fake_stack"
RUN = test_run.RUN


def facts_of(**changes):
    flashinfer = replace(machine_samples.flashinfer_facts(), **{"root": str(STACK / "flashinfer"), **changes})
    return replace(machine_samples.bare_facts(), flashinfer=flashinfer)


FACTS = facts_of()


def environ_of(**more):
    return {"PATH": os.environ["PATH"], "PYTHONPATH": str(STACK), **more}


def tried(spec, **changes):
    """A planned probe that imports torch and flashinfer anyway."""
    requires = Requires(symbols=("flashinfer.anything",))
    plain = PlannedProbe(
        spec=replace(spec, requires=requires),
        sm=Missing(reason="no GPU"),
        gpu_uuids=(),
        depth=Depth.RUN,
        variants=tuple(spec.variants) or ("",),
        skipped_variants={},
        skip="",
    )
    return replace(plain, **changes)


@pytest.fixture
def asking(tmp_path):
    """asking("return {...}", ...): probes with these bodies of run(), planned."""

    def write(*bodies, head=""):
        planned = []
        for number, body in enumerate(bodies):
            path = tmp_path / f"fake_asks{number}.py"
            name = f"fake.asks{number}"
            literal = {"id": name, "feature": name, "gpus": 0, "timeout_s": 20, "checks": "nothing"}
            path.write_text(f"'Is it?'\nimport os, time\n{head}\nPROBE = {literal}\ndef run():\n    {body}\n")
            planned.append(tried(catalog.parse(path.read_text(), str(path), "fi-doctor")))
        return planned

    return write


def bench_of(facts, environ, watch, forker, budget_s=60):
    return Bench(
        facts=facts,
        request=RUN,
        watch=watch,
        environ=environ,
        scratch=None,
        deadline=time.monotonic() + budget_s,
        stop=threading.Event(),
        talk=threading.Lock(),
        told_paths=threading.Event(),
        template=forker,
    )


def outcomes_of(planned, *, facts=FACTS, environ=None, watch=None, at_once=1):
    """In the plan's order, one after the other unless at_once."""
    environ = environ_of() if environ is None else environ
    watch = watch or test_run.Told()
    with template.started(planned, facts, environ, None) as forker, ThreadPoolExecutor(at_once) as pool:
        bench = bench_of(facts, environ, watch, forker)
        return list(pool.map(lambda probe: try_probe(probe, bench, 1), planned))


@pytest.fixture(scope="module")
def everything(tmp_path_factory):
    """All fakes of test_run at once, forked."""
    scratch = tmp_path_factory.mktemp("scratch")
    others = processes.children()  # of other tests, as tests/cli keeps one
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tempfile, "tempdir", str(scratch))
        patch.setenv("FI_DOCTOR_CHILD", test_run.EVERYTHING)
        planned = [tried(spec) for spec in test_run.specs()]
        outcomes = outcomes_of(planned, environ=environ_of(TMPDIR=str(scratch)), at_once=4)
    assert list(scratch.iterdir()) == []
    assert processes.children() == others
    return {outcome.probe.removeprefix("fake."): outcome for outcome in outcomes}


def test_every_fake_was_forked(everything):
    assert {name: outcome.started for name, outcome in everything.items()} == dict.fromkeys(EXPECTED, "forked")


def test_torch_is_imported_once_for_all(asking, tmp_path):
    planned = asking(*["import torch; return {'pid': os.getpid()}"] * 4)
    outcomes = outcomes_of(planned, environ=environ_of(FAKE_IMPORTS=str(tmp_path / "imports")), at_once=2)
    assert [outcome.started for outcome in outcomes] == ["forked"] * 4
    assert len({outcome.cells[0].measurements["pid"] for outcome in outcomes}) == 4
    assert len((tmp_path / "imports").read_text().splitlines()) == 1


def test_a_process_is_fi_doctors_own_child_with_a_session_of_its_own(asking):
    [first, _] = outcomes_of(
        asking(*["return {'parent': os.getppid(), 'own': os.getpid() == os.getsid(0) == os.getpgid(0)}"] * 2)
    )
    assert first.cells[0].measurements == {"parent": os.getpid(), "own": True}


SEEN = (
    "import sys; return {'main': sys.modules['__main__'].__file__, 'argv': repr(sys.argv), "
    "'name': sys.modules['__main__'].__name__, 'fds': len(os.listdir('/proc/self/fd')), "
    "'path': repr(sys.path), 'env': repr(sorted((k, v) for k, v in os.environ.items() if k != 'FI_DOCTOR_CHILD')), "
    "'shown': os.environ['FI_DOCTOR_CHILD'] in open('/proc/self/environ').read(), "
    "'umask': os.umask(0), 'cwd': os.getcwd(), 'flags': repr(sys.flags), 'out': str(sys.stdout)}"
)


def test_a_forked_process_finds_what_a_fresh_one_finds(asking):
    planned = asking(SEEN, SEEN, head="import torch")  # so that the fresh one has imported it, too
    forked, _ = outcomes_of(planned)
    [fresh] = outcomes_of(planned[:1])
    assert (forked.started, fresh.started) == ("forked", "fresh")
    assert forked.cells[0].measurements == fresh.cells[0].measurements
    assert "torch warns" in forked.output
    assert forked.output == fresh.output


def test_variables_that_are_read_later_may_differ(asking):
    body = (
        "return {name: os.environ.get(name, 'none') for name in ('MAX_JOBS', 'CUDA_VISIBLE_DEVICES', 'SET_BY_TORCH')}"
    )
    first, second = asking(body, body)
    outcomes = outcomes_of([replace(first, gpu_uuids=("GPU-1",)), second])
    assert [outcome.started for outcome in outcomes] == ["forked"] * 2
    assert [outcome.cells[0].measurements for outcome in outcomes] == [
        {"MAX_JOBS": "1", "CUDA_VISIBLE_DEVICES": "GPU-1", "SET_BY_TORCH": "yes"},
        {"MAX_JOBS": "1", "CUDA_VISIBLE_DEVICES": "none", "SET_BY_TORCH": "yes"},
    ]


ARCH = "return {'seen': os.environ.get('FLASHINFER_CUDA_ARCH_LIST', 'none')}"


def test_the_list_of_architectures_is_the_templates_alone(asking):
    outcomes = outcomes_of(asking(ARCH, ARCH))
    assert [(outcome.started, outcome.cells[0].measurements["seen"]) for outcome in outcomes] == [
        ("forked", "none")
    ] * 2


def test_the_users_own_list_of_architectures_is_kept(asking):
    facts = facts_of(architectures=("90a", "100a"))
    outcomes = outcomes_of(asking(ARCH, ARCH), facts=facts, environ=environ_of(FLASHINFER_CUDA_ARCH_LIST="10.0a 9.0a"))
    assert [(one.started, one.cells[0].measurements["seen"]) for one in outcomes] == [("forked", "10.0a 9.0a")] * 2


def test_what_does_not_suit_gets_a_fresh_interpreter(asking):
    suited, other, early = asking(*["return {}"] * 3)
    Path(early.spec.path).write_text(Path(early.spec.path).read_text() + "os.environ['NCCL_DEBUG'] = 'INFO'\n")
    imports = replace(other, spec=replace(other.spec, feature="import.torch", requires=Requires()))
    outside = replace(other, spec=replace(other.spec, requires=Requires()))
    outcomes = outcomes_of([suited, imports, outside, early, suited])
    assert [outcome.started for outcome in outcomes] == ["forked", "forked", "fresh", "fresh", "forked"]
    assert {outcome.ending for outcome in outcomes} == {Ending.RETURNED}


def test_a_probe_with_other_variables_does_not_suit(asking):
    [probe] = asking("return {}")
    forker = template.Template(FACTS, environ_of(), None)
    try:
        child = {**environ_of(), **template.surroundings.NO_MULTICAST, "PYTHONSAFEPATH": "1", "PYTHONFAULTHANDLER": "1"}
        assert forker.suits(probe.spec, {**child, "MAX_JOBS": "3"})
        assert not forker.suits(probe.spec, {**child, "OMP_NUM_THREADS": "3"})
        assert not forker.suits(probe.spec, {name: child[name] for name in child if name != "PYTHONPATH"})
    finally:
        forker.end()


@pytest.mark.parametrize(
    ("fault", "why"),
    [
        ("cuda", "CUDA is initialised"),
        ("bad-fork", "torch says that CUDA cannot be used after a fork"),
        ("device", "/dev/"),
        ("thread", "1 other thread runs in it"),
        ("raises", "the import failed: ImportError: libcudart.so.13: cannot open shared object file"),
        ("dies", "it ended with signal 6"),
    ],
)
def test_a_template_that_is_no_good_is_told_once_and_not_used(asking, fault, why):
    watch = test_run.Told()
    outcomes = outcomes_of(asking(*["return {}"] * 2), environ=environ_of(FAKE_STACK=fault), watch=watch)
    assert [(outcome.started, outcome.ending) for outcome in outcomes] == [("fresh", Ending.RETURNED)] * 2
    [note] = [line for line in watch.lines if "by itself" in line]
    assert why in note


def seeing(*sms):
    """Facts of a machine where CUDA sees GPUs of these capabilities."""
    unread = Missing(reason="not asked")
    gpus = tuple(
        Gpu(
            nvml_index=number,
            cuda_index=number,
            uuid=f"GPU-{number}",
            name="a GPU",
            sm=sm,
            memory_total_mib=unread,
            memory_free_mib=unread,
            mig=unread,
            pci_bus=unread,
        )
        for number, sm in enumerate(sms)
    )
    facts = GpuFacts(
        driver=unread,
        gpus=gpus,
        visible_devices=Missing(reason="not set"),
        cuda_order=tuple(gpu.uuid for gpu in gpus),
    )
    return replace(FACTS, gpus=facts)


def test_what_is_asked_of_cuda_while_importing_is_answered_without_it(asking):
    body = "import flashinfer, torch; return {'seen': str(flashinfer.seen), 'bad': torch.cuda._is_in_bad_fork()}"
    planned = asking(body, body)
    outcomes = outcomes_of(planned, facts=seeing(90), environ=environ_of(FAKE_STACK="asks"))
    assert {outcome.started for outcome in outcomes} == {"forked"}
    [told] = {tuple(cell.measurements.items()) for outcome in outcomes for cell in outcome.cells}
    assert dict(told) == {"seen": "(True, 1, (9, 0))", "bad": False}


def test_who_keeps_a_question_asks_cuda_itself_later(asking):
    body = "import flashinfer, torch; return {'kept': flashinfer.kept(), 'now': torch.cuda.device_count()}"
    outcomes = outcomes_of(asking(body, body), facts=seeing(90), environ=environ_of(FAKE_STACK="asks"))
    assert {outcome.started for outcome in outcomes} == {"forked"}
    assert all(cell.measurements == {"kept": 2, "now": 2} for outcome in outcomes for cell in outcome.cells)


@pytest.mark.parametrize("sms", [(90, 100), (Missing(reason="NVML does not say"),)])
def test_a_capability_that_is_not_one_for_all_is_not_answered(asking, sms):
    outcomes = outcomes_of(
        asking(*["return {}"] * 2),
        facts=seeing(*sms),
        environ=environ_of(FAKE_STACK="asks"),
        watch=(told := test_run.Told()),
    )
    assert {outcome.started for outcome in outcomes} == {"fresh"}
    assert any("cannot be used after a fork" in line for line in told.lines)


def test_other_architectures_than_expected_are_no_good(asking):
    watch = test_run.Told()
    outcomes = outcomes_of(asking(*["return {}"] * 2), environ=environ_of(FLASHINFER_CUDA_ARCH_LIST="8.0"), watch=watch)
    assert {outcome.started for outcome in outcomes} == {"fresh"}
    assert any("FlashInfer builds for 80 where 90a was expected" in line for line in watch.lines)


def test_gpus_of_several_architectures_are_left_to_fresh_interpreters(asking):
    facts = facts_of(architectures=("90a", "100a"), architectures_from="GPUs")
    assert {one.started for one in outcomes_of(asking(*["return {}"] * 2), facts=facts)} == {"fresh"}


def test_an_import_that_prints_without_end_does_not_block(asking):
    outcomes = outcomes_of(asking(*["return {}"] * 2), environ=environ_of(FAKE_STACK="flood"))
    assert {outcome.started for outcome in outcomes} == {"forked"}
    assert outcomes[0].output.endswith("xxxtorch warns\n")


def test_an_import_that_takes_too_long_is_ended(children, asking, monkeypatch):
    monkeypatch.setattr(template, "IMPORT_LIMIT_S", 0.5)
    watch = test_run.Told()
    outcomes = outcomes_of(asking(*["return {}"] * 2), environ=environ_of(FAKE_STACK="slow"), watch=watch)
    assert [(outcome.started, outcome.ending) for outcome in outcomes] == [("fresh", Ending.RETURNED)] * 2
    assert any("still importing them after 0.5 s" in line for line in watch.lines)
    assert children() == []


def test_a_budget_that_ends_while_it_imports_is_used_up(asking):
    planned = asking(*["return {}"] * 2)
    environ = environ_of(FAKE_STACK="slow")
    with template.started(planned, FACTS, environ, None) as forker:
        outcome = try_probe(planned[0], bench_of(FACTS, environ, test_run.Told(), forker, budget_s=0.5), 1)
    assert outcome.ending is Ending.NOT_RUN
    assert "used up before it started" in outcome.detail


def test_a_run_that_is_stopped_does_not_wait_for_the_import(children, asking):
    planned = asking(*["return {}"] * 2)
    environ = environ_of(FAKE_STACK="slow")
    begun = time.monotonic()
    with template.started(planned, FACTS, environ, None) as forker:
        bench = bench_of(FACTS, environ, test_run.Told(), forker)
        threading.Timer(0.5, bench.stop.set).start()
        with pytest.raises(Cancelled):
            try_probe(planned[0], bench, 1)
    assert time.monotonic() - begun < 5
    assert children() == []


def test_a_probe_that_is_stopped_is_killed(children, asking):
    planned = asking(*["print('begun', flush=True); time.sleep(60)"] * 2)
    with template.started(planned, FACTS, environ_of(), None) as forker:
        bench = bench_of(FACTS, environ_of(), test_run.Told(), forker)
        threading.Timer(1.0, bench.stop.set).start()
        with pytest.raises(Cancelled):
            try_probe(planned[0], bench, 1)
        assert len(children()) == 1
    assert children() == []


KILLS_THE_TEMPLATE = """
import pathlib, signal
for entry in pathlib.Path("/proc").glob("[0-9]*"):
        try: parent = (entry / "stat").read_text().rpartition(")")[2].split()[1]
        except OSError: continue
        if int(parent) != os.getppid() or int(entry.name) == os.getpid(): continue
        if b"inside/template.py" in (entry / "cmdline").read_bytes(): os.kill(int(entry.name), signal.SIGKILL)
"""


def test_when_the_template_is_killed_a_probe_goes_on_and_the_next_is_fresh(children, asking):
    body = KILLS_THE_TEMPLATE.strip().replace("\n", "\n    ") + "\n    time.sleep(0.5); return {'alive': True}"
    watch = test_run.Told()
    outcomes = outcomes_of(asking(body, "return {}", "return {}"), watch=watch)
    assert [outcome.ending for outcome in outcomes] == [Ending.RETURNED] * 3
    assert [outcome.started for outcome in outcomes] == ["forked", "fresh", "fresh"]
    assert any("it ended" in line for line in watch.lines)
    assert children() == []


def test_a_crash_while_leaving_and_a_thread_that_is_left_change_nothing(asking):
    late = "import threading; threading.Thread(target=lambda: (time.sleep(0.3), print('late'))).start(); return {}"
    outcomes = outcomes_of(asking(late, "import atexit; atexit.register(os.abort); return {}"))
    assert [(outcome.started, outcome.ending) for outcome in outcomes] == [("forked", Ending.RETURNED)] * 2
    assert "late" in outcomes[0].output
    assert "Fatal Python error: Aborted" in outcomes[1].output


def test_for_one_probe_there_is_no_template(asking):
    with template.started(asking("return {}"), FACTS, environ_of(), None) as forker:
        assert forker is None


def test_a_template_that_nobody_asks_is_ended_at_once(children, asking):
    begun = time.monotonic()
    with template.started(asking(*["return {}"] * 2), FACTS, environ_of(FAKE_STACK="slow"), None):
        pass
    assert time.monotonic() - begun < 5
    assert children() == []


MAIN = """
import sys; sys.path[:0] = [{tests!r}, {root!r}]
import pathlib, test_template
from fi_doctor.probing import catalog
paths = sorted(pathlib.Path({folder!r}).glob("fake_asks*.py"))
planned = [test_template.tried(catalog.parse(path.read_text(), str(path), "fi-doctor")) for path in paths]
test_template.outcomes_of(planned, environ=test_template.environ_of(FLAG={flag!r}), at_once=2)
"""
SLEEPS = "open(os.environ['FLAG'], 'a').write('x'); time.sleep(60)"


def test_when_fi_doctor_is_killed_template_and_probes_end(asking, tmp_path):
    asking(*[SLEEPS] * 2)
    marker = f"dies-{os.getpid()}"
    flag = tmp_path / "flag"
    root = Path(__file__).parents[2]
    script = MAIN.format(tests=str(Path(__file__).parent), root=str(root), folder=str(tmp_path), flag=str(flag))
    main = subprocess.Popen([sys.executable, "-c", script], env={**os.environ, "FI_DOCTOR_CHILD": marker})
    try:
        assert test_run.until(lambda: flag.exists() and len(flag.read_text()) == 2, most_s=20)
        assert len(test_run.marked_processes(marker)) == 3
    finally:
        main.kill()
        main.wait()
    assert test_run.until(lambda: test_run.marked_processes(marker) == [], most_s=5)


def test_forks_of_a_probe_carry_its_own_marker(asking):
    body = (
        "pid = os.fork()\n    if pid == 0: os.setsid(); time.sleep(60)\n    time.sleep(0.2)\n"
        "    return {'pid': pid, 'own': os.environ['FI_DOCTOR_CHILD'] in open(f'/proc/{pid}/environ').read()}"
    )
    outcomes = outcomes_of(asking(body, body), at_once=2)
    assert [outcome.cells[0].measurements["own"] for outcome in outcomes] == [True, True]
    assert not any(Path(f"/proc/{one.cells[0].measurements['pid']}").exists() for one in outcomes)


@pytest.mark.parametrize(
    ("tags", "value"),
    [(("90a",), "9.0a"), (("89",), "8.9"), (("120f",), "12.0f"), (("103a", "121a"), "10.3a 12.1a"), ((), "")],
    ids=["sm90", "sm89", "sm120", "two", "none"],
)
def test_tags_become_the_list_that_gives_them(tags, value):
    assert template.arch_list(tags) == value


@pytest.mark.parametrize("version", ["0.5.2", "0.5.3", "0.6.7.post3", "0.7.2.post1"])
@pytest.mark.parametrize("capability", [(8, 0), (8, 9), (9, 0), (10, 0), (10, 3), (12, 0), (12, 1)], ids=str)
def test_the_list_gives_what_the_installed_version_derives_from_the_gpus(unpacked, monkeypatch, version, capability):
    source = (unpacked(version) / "compilation_context.py").read_text()
    cuda = types.SimpleNamespace(device_count=lambda: 1, get_device_capability=lambda device: capability)
    monkeypatch.setitem(sys.modules, "torch", types.SimpleNamespace(cuda=cuda))
    extension = types.SimpleNamespace(is_cuda_version_at_least=lambda version: True)
    for name, module in (("flashinfer", None), ("flashinfer.jit", None), ("flashinfer.jit.cpp_ext", extension)):
        monkeypatch.setitem(sys.modules, name, module or types.SimpleNamespace())

    def targets():
        space = {}
        exec(compile(source, "compilation_context.py", "exec"), space)
        return space["CompilationContext"]().TARGET_CUDA_ARCHS

    monkeypatch.delenv(template.ARCHITECTURES, raising=False)
    by_gpus = targets()
    tags = [f"{major}{minor}" for major, minor in by_gpus]
    monkeypatch.setenv(template.ARCHITECTURES, template.arch_list(tags))
    assert len(by_gpus) == 1
    assert targets() == by_gpus


@pytest.mark.parametrize(
    ("source", "touches"),
    [
        ("import os\nos.environ['A'] = 'b'", True),
        ("import os\nif True:\n    os.environ.setdefault('A', 'b')", True),
        ("from os import putenv\nputenv('A', 'b')", True),
        ("import os\ndef run():\n    return os.environ['A']", False),
        ("import os\nclass A:\n    def a(self):\n        return os.environ", False),
    ],
    ids=["set", "default", "putenv", "function", "method"],
)
def test_a_probe_that_prepares_the_environment_of_its_imports_is_known(source, touches):
    assert template.touches_environment(source) is touches


ALONE = {"comm_peer_transfer"}  # they import neither, and there is nothing to fork them from
_IMPORT = re.compile(r"^\s*(import|from) (torch|flashinfer)", re.MULTILINE)
OURS = sorted((test_run.FAKES.parents[1] / "probes").glob("[a-z]*_*.py"))


@pytest.mark.parametrize("path", OURS, ids=lambda path: path.stem)
def test_every_probe_of_ours_may_be_forked(path):
    spec = catalog.parse(path.read_text(), str(path), "fi-doctor")
    assert template.imports_both(spec) is not (path.stem.startswith("import_") or path.stem in ALONE)
    assert template.imports_both(spec) or spec.feature in template.IMPORTS or not _IMPORT.search(path.read_text())
    assert not template.touches_environment(path.read_text())


def test_a_template_whose_answer_cannot_be_read_is_unfit(asking, monkeypatch):
    monkeypatch.setattr(template.socket.socket, "recv", lambda *_: b"not json")
    watch = test_run.Told()
    outcomes = outcomes_of(asking(*["return {}"] * 2), watch=watch)
    assert [(outcome.started, outcome.ending) for outcome in outcomes] == [("fresh", Ending.RETURNED)] * 2
    assert any("its answer cannot be read" in line for line in watch.lines)
