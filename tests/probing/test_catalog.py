import ast
import importlib.metadata
import os
import re
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace

from fi_doctor.errors import BrokenDoctorError, DataError
from fi_doctor.model import OWN, ProbeSpec, Requires
from fi_doctor.probing import catalog, registered
from fi_doctor.probing.skeleton import without_bodies

ROOT = Path(__file__).parents[2]
NEWLINE = "\n"  # in an f-string no backslash before Python 3.12
GOOD = '''"""Does it work? More words."""
raise SystemExit("a catalog never runs a probe")
PROBE = {
    "id": "kv.copy",
    "feature": "kv.append_paged",
    "module": "page",
    "requires": {"sm": ">=90,<100", "symbols": ["flashinfer.page.append"], "packages": {"numpy": ""}},
    "variants": {"nhd": {}, "hnd": {"flashinfer": ">=0.6"}},
    "timeout_s": 7,
}
def build(variant): ...
def run(variant): ...
'''


def errors_of(text):
    parsed = catalog.parse(text, "p.py", "tests")
    assert isinstance(parsed, list)
    return parsed


def test_a_probe_is_read_without_being_run():
    spec = catalog.parse(GOOD, "p.py", "tests")
    assert isinstance(spec, ProbeSpec)
    assert (spec.id, spec.question, spec.module, spec.timeout_s) == ("kv.copy", "Does it work?", "page", 7)
    assert spec.variants == {"nhd": Requires(), "hnd": Requires(flashinfer=">=0.6")}
    assert spec.requires.symbols == ("flashinfer.page.append",)
    assert (spec.gpus, spec.build_timeout_s, spec.compiles, spec.checks_numbers) == (1, 600, ("nvcc",), True)
    assert spec.has_build
    assert not catalog.parse(GOOD.replace("def build", "def built"), "p.py", "tests").has_build


def test_what_our_own_probes_keep_to_is_not_asked_of_others(tmp_path):
    """The name of the file, a question mark, Shapes:, Upstream: and __main__ are for people (tests/probes)."""
    (tmp_path / "anything.py").write_text(
        "'Copies keys'\nPROBE = {'id': 'kv.copy', 'feature': 'kv.copy'}\ndef run(): return {}"
    )
    [spec] = [spec for spec in catalog.discover((tmp_path,)) if spec.id == "kv.copy"]
    assert spec.question == "Copies keys"


MAIN = "if __name__ == '__main__':\n    print(run())\n"
NAMED = "import sys\nif __name__ == '__main__':\n    for name in sys.argv[1:]: run(name)\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (GOOD, False),
        (GOOD + MAIN, False),
        (GOOD + NAMED, True),
        ("'?'\nPROBE = {'id': 'kv.copy', 'feature': 'kv.copy'}\ndef run(): ...\n" + MAIN, True),
        ("'?'\nPROBE = {'id': 'kv.copy', 'feature': 'kv.copy'}\ndef run(): ...\n", False),
    ],
    ids=["no-main", "names-not-taken", "names-taken", "no-variants", "no-variants-no-main"],
)
def test_whether_running_the_file_runs_the_variants_that_are_named(text, expected):
    spec = catalog.parse(text, "p.py", "tests")
    assert isinstance(spec, ProbeSpec)
    assert spec.runs_by_hand == expected


def test_the_question_ends_where_the_sentence_does():
    spec = catalog.parse(GOOD.replace("Does it work?", "Does flashinfer.norm give 1.5\n    for e = 1e-5?"), "p.py", "t")
    assert spec.question == "Does flashinfer.norm give 1.5 for e = 1e-5?"


@pytest.mark.parametrize(
    ("old", "new", "error"),
    [
        ("PROBE = {", "PROBE = {,", "not Python"),
        ("PROBE = {", "OTHER = {", "it has no PROBE"),
        ("PROBE = {", "PROBE = {}\nPROBE = {", "PROBE is given a value again in line "),
        ('"page"', "page()", "PROBE must be a literal"),
        ('"module"', '"modul"', "PROBE['modul']: unknown key; known are id, feature,"),
        ('"timeout_s": 7', '"timeout_s": "7"', "PROBE['timeout_s']: Expected `int`, got `str`"),
        ('"timeout_s": 7', '"timeout_s": 0', "PROBE['timeout_s']: expected seconds above 0, a week at most, got 0"),
        (
            '"timeout_s": 7',
            '"timeout_s": 1' + "0" * 400,
            "PROBE['timeout_s']: expected seconds above 0, a week at most",
        ),
        ('"timeout_s": 7', "[]: 7", "PROBE must be a literal"),
        ('"timeout_s": 7', '"timeout_s": ' + "-" * 100_000 + "7", "nested too deeply"),
        ('"timeout_s": 7', '"timeout_s": 7' + "+7" * 2_000, "PROBE must be a literal"),
        ('"id": "kv.copy"', '"id": "copy"', "PROBE['id']: expected \"family.name\", got 'copy'"),
        ('"feature"', '"module"', "PROBE['feature'] is missing"),
        (">=90,<100", "Hopper", "PROBE['requires']['sm']: expected a range such as \">=90,<100\", got 'Hopper'"),
        (">=0.6", "0.6", "PROBE['variants']['hnd']['flashinfer']: expected a range"),
        ('"sm"', '"sms"', "PROBE['requires']: Object contains unknown field `sms`"),
        ('"packages"', '"gpus": 2, "packages"', "PROBE['requires']['gpus']: only a variant has it"),
        ('"nhd": {}', '"nhd": {"gpus": 1}', "PROBE['variants']['nhd']['gpus']: expected more than PROBE['gpus']"),
        ('"nhd": {}', '"nhd": {"gpus": 4}', "PROBE['variants']['nhd']['gpus']: expected more than PROBE['gpus']"),
        ("def run", "def ran", "it has no function run()"),
        ('"""Does it work? More words."""', "", "its docstring must begin with the question"),
    ],
    ids=lambda text: text[:24],
)
def test_a_broken_probe_says_what_is_wrong(old, new, error):
    assert old in GOOD
    [line] = errors_of(GOOD.replace(old, new))
    assert re.match(r"p\.py(:[0-9]+)?: ", line)
    assert error in line


def test_all_errors_of_a_file_are_told_together():
    assert len(errors_of("PROBE = {'id': 1, 'gpus': 'x', 'y': 0}")) == 6


def test_our_own_probes_are_found_and_sound():
    specs = catalog.discover()
    assert {"import.torch", "import.flashinfer"} <= {spec.id for spec in specs}
    assert list(specs) == sorted(specs, key=lambda spec: spec.id)
    assert {spec.origin for spec in specs} == {"fi-doctor"}
    assert catalog.source(specs[0]) == Path(specs[0].path).read_text()


def test_the_fake_probes_can_be_added_by_folder():
    fakes = Path(__file__).parents[1] / "fake_probes"
    specs = catalog.discover((fakes,))
    assert {spec.origin for spec in specs if spec.id.startswith("fake.")} == {str(fakes)}


def test_what_is_broken_is_told_of_each_file_and_takes_no_other_with_it(tmp_path):
    (tmp_path / "a.py").write_text("x")
    (tmp_path / "b.py").write_text("(")
    (tmp_path / "_private.py").write_text("(")
    (tmp_path / "kv_copy.py").write_text(GOOD)
    found = [spec for spec in catalog.discover((tmp_path, tmp_path / "none")) if spec.origin != "fi-doctor"]
    assert {spec.id for spec in found if not spec.fault} == {"kv.copy"}
    assert {Path(spec.fault.split(":")[0]).name for spec in found if spec.fault} == {"a.py", "b.py", "none"}


def test_two_probes_of_one_id_are_both_named(tmp_path):
    (tmp_path / "a.py").write_text(GOOD)
    (tmp_path / "b.py").write_text(GOOD)
    first, second = (spec for spec in catalog.discover((tmp_path,)) if spec.origin != "fi-doctor")
    assert (first.id, first.path, first.fault) == ("kv.copy", str(tmp_path / "a.py"), "")
    assert second.fault == f"{tmp_path / 'b.py'}: id 'kv.copy' is already that of {tmp_path / 'a.py'}"


def test_a_broken_probe_of_our_own_is_our_fault(tmp_path, monkeypatch):
    (tmp_path / "probes").mkdir()
    (tmp_path / "pyproject.toml").write_text("")
    (tmp_path / "probes" / "a.py").write_text("(")
    monkeypatch.setattr(registered, "_ROOT", tmp_path)
    with pytest.raises(BrokenDoctorError):
        catalog.discover()


@pytest.fixture
def third_party(tmp_path, monkeypatch):
    """An installed distribution that registers a folder of probes by an entry point."""

    def install(value):
        probes = tmp_path / "acme" / "probes"
        probes.mkdir(parents=True)
        (tmp_path / "acme" / "__init__.py").write_text("raise SystemExit('imported')")
        (probes / "kv_copy.py").write_text(GOOD)
        info = tmp_path / "acme_kernels-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-kernels\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[fi_doctor.probes]\nacme = {value}\n")
        monkeypatch.syspath_prepend(str(tmp_path))
        return probes

    return install


def test_an_id_of_ours_that_somebody_else_takes_is_their_fault(third_party, tmp_path):
    third_party("acme.probes")
    [ours] = [spec for spec in catalog.discover() if spec.id == "import.torch"]
    theirs = tmp_path / "acme" / "probes" / "kv_copy.py"
    theirs.write_text(GOOD.replace("kv.copy", "import.torch"))
    [faulty] = [spec for spec in catalog.discover() if spec.origin == "acme-kernels"]
    assert faulty.fault == f"{theirs}: id 'import.torch' is already that of {ours.path}"
    assert ours in catalog.discover()


def test_it_is_their_fault_in_whatever_order_the_folders_are_read():
    ours, theirs = (catalog.parse(GOOD, f"{origin}.py", origin) for origin in (catalog.OWN, "acme"))
    sound, broken = catalog._check_ids([theirs, ours])
    assert sound == [ours]
    assert [(one.origin, one.why) for one in broken] == [
        ("acme", "acme.py: id 'kv.copy' is already that of fi-doctor.py")
    ]


def test_a_folder_that_has_our_name_is_not_ours(tmp_path, monkeypatch):
    (tmp_path / "fi-doctor").mkdir()
    (tmp_path / "fi-doctor" / "a.py").write_text("(")
    monkeypatch.chdir(tmp_path)
    assert [spec.path for spec in catalog.discover((Path("fi-doctor"),)) if spec.fault] == [
        str(tmp_path / "fi-doctor" / "a.py")
    ]


def test_what_is_no_regular_file_is_passed_over(tmp_path):
    os.mkfifo(tmp_path / "fifo.py")
    (tmp_path / "folder.py").mkdir()
    (tmp_path / "dangling.py").symlink_to("nowhere")
    (tmp_path / "kv_copy.py").write_text(GOOD)
    assert [spec.id for spec in catalog.discover((tmp_path,)) if spec.origin == str(tmp_path)] == ["kv.copy"]


def test_a_file_too_large_for_a_probe_is_refused(tmp_path):
    (tmp_path / "a.py").write_text(GOOD + "#" * catalog.MOST_BYTES)
    [faulty] = [spec for spec in catalog.discover((tmp_path,)) if spec.fault]
    assert faulty.fault.startswith(f"{tmp_path / 'a.py'}: cannot be read: ")


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("entry_points.txt", b"[fi_doctor.probes]\nx = \xff\xfe\n"),
        ("entry_points.txt", b"[fi_doctor.probes]\nno equals sign\n"),
        ("METADATA", b"Name: \xff\xfe\n"),
        ("METADATA", b""),
    ],
    ids=["points-not-utf8", "points-not-pairs", "metadata-not-utf8", "no-name"],
)
def test_a_distribution_with_broken_metadata_hides_no_other(third_party, tmp_path, monkeypatch, name, content):
    third_party("acme.probes")
    info = tmp_path / "other" / "broken-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "entry_points.txt").write_text("[fi_doctor.probes]\nx = no_such_package\n")
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: broken\nVersion: 1.0\n")
    (info / name).write_bytes(content)
    monkeypatch.syspath_prepend(str(info.parent))
    assert "acme-kernels" in {spec.origin for spec in catalog.discover()}


def test_a_registered_folder_is_found_without_importing_anything(third_party):
    third_party("acme.probes")
    assert {spec.origin for spec in catalog.discover() if spec.id == "kv.copy"} == {"acme-kernels"}
    assert "acme" not in sys.modules


def test_an_entry_point_that_leads_nowhere_is_told(third_party):
    third_party("no_such_package.probes")
    [faulty] = [spec for spec in catalog.discover() if spec.fault]
    assert (faulty.id, faulty.origin) == ("acme_kernels.acme", "acme-kernels")
    assert faulty.fault == ("entry point 'acme' in group 'fi_doctor.probes': no package 'no_such_package' is installed")
    with pytest.raises(DataError, match=r"probe acme_kernels\.acme cannot be shown"):
        catalog.source(faulty)


@pytest.mark.parametrize(
    ("name", "text", "row", "said"),
    [
        ("kv_paste.py", GOOD + "\n\ndef wrong(:\n", "kv.paste", f":{GOOD.count(NEWLINE) + 3}: not Python: "),
        ("kv_paste.py", GOOD.replace("PROBE = {", "PROBE = {**{},"), "kv.paste", ":3: PROBE must be a literal"),
        ("kv_paste.py", GOOD.replace('"sm"', '"sms"'), "kv.paste", "unknown field `sms`"),
        ("norm_rmsnorm.py", "(", "acme_kernels.norm_rmsnorm", ":1: not Python: '(' was never closed"),
        ("kv_copy.py", "(", "kv.copy", ":1: not Python: "),
        ("copy.py", "(", "acme_kernels.copy", ":1: not Python: "),
    ],
    ids=["syntax", "no-literal", "unknown-key", "a-name-of-ours", "the-only-one", "no-id"],
)
def test_a_broken_probe_has_a_row_by_the_name_of_its_file_unless_that_is_taken(third_party, name, text, row, said):
    folder = third_party("acme.probes")
    ours = [spec for spec in catalog.discover() if spec.origin == "fi-doctor"]
    (folder / name).write_text(text)
    found = catalog.discover()
    [faulty] = [spec for spec in found if spec.fault]
    assert (faulty.id, faulty.feature, faulty.origin) == (row, row, "acme-kernels")
    assert faulty.fault.startswith(str(folder / name))
    assert said in faulty.fault
    assert [spec for spec in found if spec.origin == "fi-doctor"] == ours


def test_installed_probes_are_found_by_our_entry_point(tmp_path, monkeypatch):
    package = tmp_path / "site" / "fi_doctor_probes"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise SystemExit('imported')")
    (package / "kv_copy.py").write_text(GOOD)
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    monkeypatch.setattr(registered, "_ROOT", tmp_path)
    monkeypatch.setattr(importlib.metadata, "distributions", list)
    assert [(spec.id, spec.origin) for spec in catalog.discover()] == [("kv.copy", "fi-doctor")]


@pytest.mark.parametrize(
    ("name", "text", "may"),
    [
        ("other-1.dist-info", "[fi_doctor.probes]\nx = x.y\n", True),
        ("other-1.dist-info", "[console_scripts]\nx = x:y\n", False),
        ("other-1.dist-info", None, False),
        ("other.egg-info", "[fi_doctor.probes]\nx = x.y\n", True),
        ("other.egg", None, True),
        ("fi_doctor-1.dist-info", "[fi_doctor.probes]\nx = x.y\n", False),
        ("notes", "[fi_doctor.probes]\n", False),
    ],
)
def test_metadata_is_read_where_somebody_else_may_register_probes(tmp_path, monkeypatch, name, text, may):
    (tmp_path / name).mkdir()
    if text is not None:
        (tmp_path / name / "entry_points.txt").write_text(text)
    monkeypatch.setattr(sys, "path", [str(tmp_path), str(tmp_path / "absent.zip")])
    monkeypatch.setattr(registered, "_ROOT", tmp_path)
    asked = []
    monkeypatch.setattr(importlib.metadata, "distributions", lambda: asked.append(1) or [])
    registered.registered()
    assert bool(asked) is may


@pytest.mark.parametrize("path", sorted((ROOT / "probes").glob("[!_]*.py")), ids=lambda path: path.stem)
def test_our_own_are_described_alike_without_what_their_functions_do(path):
    text = path.read_text(encoding="utf-8")
    whole = catalog.parse(text, str(path), "somebody else's")
    assert isinstance(whole, ProbeSpec)
    assert replace(whole, origin=OWN) == catalog.parse(text, str(path), OWN)
    # Every top-level statement is still there, on its line.
    cut = ast.parse(without_bodies(text))
    assert [(type(node), node.lineno) for node in cut.body] == [
        (type(node), node.lineno) for node in ast.parse(text).body
    ]
    assert len(list(ast.walk(cut))) < len(list(ast.walk(ast.parse(text))))
