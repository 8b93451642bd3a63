"""--python PATH: an interpreter that cannot be examined is said with a reason; nothing of it is imported by us."""

from __future__ import annotations

import json
import os
import pathlib
import sys

import pytest
from cli_command import ROOT, in_three_parts, script

ENOUGH_OF_TORCH = """
from types import SimpleNamespace
__version__ = "1.0"
version = SimpleNamespace(cuda=None)
cuda = SimpleNamespace(is_available=lambda: False, device_count=lambda: 0)
"""
STACK = ("torch", "flashinfer", "vllm", "numpy", "triton")


def test_a_missing_interpreter_is_2(doctor, tmp_path):
    refused(doctor("check", "--python", tmp_path / "none/bin/python"), "there is no such file")


def test_a_name_that_is_not_on_path_is_2(doctor):
    refused(doctor("check", "--python", "python9.99"), "on PATH")


def test_a_folder_is_2_and_the_interpreter_inside_is_named(doctor, tmp_path):
    (tmp_path / "venv/bin").mkdir(parents=True)
    script(tmp_path / "venv/bin/python", "#!/bin/sh\n")
    done = doctor("check", "--python", tmp_path / "venv")
    refused(done, "directory")
    assert str(tmp_path / "venv/bin/python") in in_three_parts(done.stderr)["try"]


def test_a_file_that_is_not_executable_is_2(doctor, tmp_path):
    (tmp_path / "python").write_text("#!/bin/sh\n", encoding="utf-8")
    refused(doctor("check", "--python", tmp_path / "python"), "not executable")


def test_a_dangling_link_is_2(doctor, tmp_path):
    (tmp_path / "python").symlink_to(tmp_path / "gone")
    refused(doctor("check", "--python", tmp_path / "python"), "does not exist")


@pytest.mark.parametrize(
    "text",
    [
        "#!/bin/sh\nexit 3\n",
        "#!/bin/sh\necho 'Python 3.12.4'\n",
        "#!/bin/sh\nhead -c 20000000 /dev/urandom\n",
        '#!/bin/sh\necho "$3 {\\"broken\\": $3"\n',
        "#!/no/such/interpreter\n",
        "no script at all\n",
        "#!/bin/sh\nkill -SEGV $$\n",
    ],
    ids=["fails", "greets", "rubbish", "half-a-survey", "no-shebang-target", "no-format", "crashes"],
)
def test_what_is_not_python_is_2(doctor, tmp_path, text):
    refused(doctor("check", "--python", script(tmp_path / "python", text)), "")


def test_an_interpreter_that_hangs_is_2_and_is_not_left_behind(doctor, tmp_path):
    hanging = script(tmp_path / "python", "#!/bin/sh\nsleep 600 &\nexec sleep 600\n")
    # The limit of 20 s is shortened from outside, so that the test is.
    code = "import fi_doctor.facts.packages as p; p.SURVEY_TIMEOUT_S = 1.0; import fi_doctor.__main__ as m; m.main()"
    argv = [sys.executable, "-c", code, "check", "--python", hanging]
    refused(doctor(argv=argv), "no answer within 1 s")
    assert doctor.processes() == []


def test_a_mistake_elsewhere_does_not_wait_for_an_interpreter_that_hangs(doctor, tmp_path):
    hanging = script(tmp_path / "python", "#!/bin/sh\nexec sleep 600\n")
    done = doctor("check", "--python", hanging, "--feature", "nonesuch.*")
    assert done.returncode == 2
    assert "nonesuch" in in_three_parts(done.stderr)["error"]
    assert doctor.processes() == []


def test_an_interpreter_in_which_fi_doctor_is_not_installed_is_examined(doctor, tmp_path):
    # -I keeps our own PYTHONPATH out of it, as in a virtual environment of its own.
    bare = script(tmp_path / "python", f'#!/bin/sh\nexec {sys.executable} -I -S "$@"\n')
    done = doctor("check", "--python", bare, "--depth", "static", "--format", "json")
    assert done.returncode == 3, done.stderr
    facts = json.loads(done.stdout)["facts"]
    assert str(ROOT) not in facts["interpreter"]["sys_path"]
    assert "reason" in facts["packages"]["torch"]


def refused(done, why):
    assert (done.returncode, done.stdout) == (2, ""), done.stderr
    said = in_three_parts(done.stderr)
    assert said["error"]
    assert said["why"]
    assert why in said["why"]
    assert said["try"]
    assert "Traceback" not in done.stderr


@pytest.fixture
def stack(tmp_path):
    """Stand-ins for the whole stack that can be imported, are installed, and tell by whom they were imported."""
    site = tmp_path / "site"
    names = {"torch": "torch", "flashinfer": "flashinfer-python", "vllm": "vllm", "numpy": "numpy", "triton": "triton"}
    for module, name in names.items():
        (site / module).mkdir(parents=True)
        telling = f"import os\nopen(os.path.join({str(site)!r}, 'imported'), 'a').write('{module}\\n')\n"
        (site / module / "__init__.py").write_text(telling, encoding="utf-8")
        info = site / f"{name.replace('-', '_')}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n", encoding="utf-8")
    (site / "torch/version.py").write_text("__version__ = '1.0'\ncuda = '13.0'\n", encoding="utf-8")
    return site


def test_what_a_wrapper_sets_holds_for_the_probes_as_for_the_facts(doctor, stack, tmp_path):
    with (stack / "torch/__init__.py").open("a", encoding="utf-8") as file:
        file.write(ENOUGH_OF_TORCH)
    wrapper = script(tmp_path / "python", f'#!/bin/sh\nPYTHONPATH={stack} exec {sys.executable} "$@"\n')
    done = doctor("check", "--python", wrapper, "--feature", "import.torch", "-f", "json", "-f", "console:out")
    told = json.loads(done.stdout)
    facts, [row] = told["facts"], told["features"]
    assert facts["packages"]["torch"]["version"] == "1.0"
    assert (row["verdict"], row["evidence"]) == ("works", "ran"), row["why"]
    assert (stack / "imported").read_text(encoding="utf-8") == "torch\n"
    assert facts["interpreter"]["pythonpath"] == facts["environment"]["PYTHONPATH"] == str(stack)
    [reproduce] = [outcome["reproduce"] for outcome in told["outcomes"]]
    assert f"PYTHONPATH={stack} " in reproduce
    said = " ".join((doctor.folder / "out").read_text(encoding="utf-8").split())
    assert f"({sys.executable}, started by {wrapper})" in said
    # A command that is to be pasted starts it in the same way.
    static = doctor("check", "--python", wrapper, "--feature", "import.torch", "--depth", "static").stdout
    assert f"fi-doctor check --python {wrapper} --feature import.torch" in " ".join(static.split())


COMMANDS = [
    ["check", "--depth", "static"],
    ["check", "--depth", "static", "--format", "json"],
    ["report"],
    ["report", "--json"],
    ["features"],
    ["probes", "list"],
    ["explain", "norm.rmsnorm"],
    ["--help"],
]


@pytest.mark.parametrize("args", COMMANDS, ids="-".join)
def test_nothing_of_the_stack_is_imported(doctor, stack, args):
    seen, code = offenders(doctor, stack, args)
    assert seen == []
    assert code in (0, 1, 3)
    assert not (stack / "imported").exists()


def test_the_check_for_imports_sees_one(doctor, stack):
    seen, _ = offenders(doctor, stack, ["features"], first="import numpy; ")
    assert seen == ["numpy"]
    assert (stack / "imported").read_text(encoding="utf-8") == "numpy\n"


def test_the_stand_ins_are_taken_for_installed(doctor, stack):
    done = doctor("report", "--json", env={"PYTHONPATH": f"{stack}{os.pathsep}{ROOT}"})
    packages = json.loads(done.stdout)["facts"]["packages"]
    assert {packages[name]["version"] for name in ("torch", "flashinfer-python", "vllm", "triton")} == {"1.0"}


def offenders(doctor, stack, args, first=""):
    """The modules of the stack that the command's own process has imported at its end, and its exit code."""
    code = (
        f"{first}import sys; from fi_doctor.cli import run; code = run(sys.argv[1:]); "
        "seen = {name.partition('.')[0] for name in sys.modules}; "
        f"print('SEEN', *sorted(seen & {set(STACK)!r}), file=sys.stderr); sys.exit(code)"
    )
    argv = [sys.executable, "-c", code, *args]
    done = doctor(argv=argv, env={"PYTHONPATH": f"{stack}{os.pathsep}{ROOT}"})
    [line] = [line for line in done.stderr.splitlines() if line.startswith("SEEN")]
    return line.split()[1:], done.returncode


def test_the_path_of_the_checkout_is_what_is_tested():
    assert pathlib.Path(__import__("fi_doctor").__file__).is_relative_to(ROOT)
