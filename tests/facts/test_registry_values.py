"""Each way in which a text is turned into a value: what it takes, what it refuses, and what it makes of it."""

import pytest
from msgspec.structs import replace

from fi_doctor.model import Missing
from fi_doctor.model.registry import Parse, Registered, Registry, equals_default, means, refuses

ONE = Registered(name="VLLM_X", kind="env", type="", parse=Parse.TEXT, default=None, source="envs.py:1")
FLAG = replace(ONE, name="--x", kind="flag", parse=Parse.FLAG, negations=("--no-x",))


def of(parse, *choices, **changes):
    return replace(ONE, parse=parse, choices=choices, **changes)


@pytest.mark.parametrize(
    ("one", "value", "result"),
    [
        (of(Parse.INT), " 3 ", 3),
        (of(Parse.FLOAT), "1e3", 1000.0),
        (of(Parse.BOOL_INT), "0", False),
        (of(Parse.BOOL_INT), "2", True),
        (of(Parse.BOOL_WORDS, "true", "1"), "TRUE", True),
        (of(Parse.BOOL_WORDS, "true", "1"), "yes", False),
        (of(Parse.BOOL_WORDS, "true", off=("false",)), "False", False),
        (of(Parse.BOOL_LAX), "Off", False),
        (of(Parse.BOOL_LAX), "1", True),
        (of(Parse.EQUALS, "1"), "1", True),
        (of(Parse.EQUALS, "1"), "true", False),
        (of(Parse.DIFFERS, "0"), "false", True),
        (of(Parse.DIFFERS, "0"), "0", False),
        (of(Parse.DIFFERS_ANY_CASE, "0", "false"), "FALSE", False),
        (of(Parse.TRUTHY), "0", True),
        (of(Parse.TRUTHY), "", False),
        (of(Parse.IS_SET), "", True),
        (of(Parse.CHOICE, "FLASHINFER"), "FLASHINFER", "FLASHINFER"),
        (of(Parse.CHOICE_ANY_CASE, "FLASHINFER"), "flashinfer", "FLASHINFER"),
        (of(Parse.CHOICE_DASHES, "flashinfer_cutlass"), "FlashInfer-Cutlass", "flashinfer_cutlass"),
        (of(Parse.CHOICES_LIST, "a", "b"), "a, b,", ("a", "b")),
        (of(Parse.LIST), "x, y", ("x", "y")),
        (of(Parse.JSON), '{"2": 1}', '{"2": 1}'),
        (of(Parse.PATH), "/tmp", "/tmp"),
        (of(Parse.TEXT), "", ""),
        (FLAG, "", True),
        (replace(FLAG, parse=Parse.INT, negations=(), optional=True), "None", None),
        (replace(ONE, kind="key", parse=Parse.BOOL_LAX, optional=True), "null", None),
    ],
    ids=lambda one: one.parse.value if isinstance(one, Registered) else repr(one),
)
def test_a_text_that_is_taken_means_a_value(one, value, result):
    assert refuses(one, value) is None
    assert means(one, value) == result
    assert type(means(one, value)) is type(result)


@pytest.mark.parametrize(
    ("one", "value", "why"),
    [
        (of(Parse.INT), "1.5", "'1.5' is no number: int() raises ValueError"),
        (of(Parse.FLOAT), "fast", "'fast' is no number: float() raises ValueError"),
        (of(Parse.BOOL_INT), "true", "'true' is no number: int() raises ValueError, which takes 0 and 1"),
        (of(Parse.BOOL_INT), "", "'' is no number: int() raises ValueError, which takes 0 and 1"),
        (of(Parse.BOOL_WORDS, "true", off=("false",)), "on", "'on' is none of true, false, and counts as unset"),
        (of(Parse.BOOL_LAX), "maybe", "'maybe' is neither true nor false"),
        (of(Parse.CHOICE, "FLASHINFER"), "flashinfer", "'flashinfer' is not 'FLASHINFER'"),
        (of(Parse.CHOICE, "a", "b"), "c", "'c' is none of a, b"),
        (of(Parse.CHOICE_ANY_CASE, "a"), "c", "'c' is none of a"),
        (of(Parse.CHOICE_DASHES, "a_b"), "a b", "'a b' is none of a_b"),
        (of(Parse.CHOICES_LIST, "a"), "a,c", "'c' is none of a"),
        (of(Parse.JSON), "{2: 1}", "'{2: 1}' is not JSON"),
        (of(Parse.SIZE), "2 kB", "'2 kB' is no size, such as 1024 or 2k"),
        (FLAG, "true", "--x takes no value; --no-x says the opposite"),
        (replace(FLAG, parse=Parse.INT, several=True), "1 two", "'two' is no number: int() raises ValueError"),
    ],
    ids=lambda one: one.parse.value if isinstance(one, Registered) else repr(one),
)
def test_a_text_that_is_refused_says_why_and_means_nothing(one, value, why):
    assert refuses(one, value) == why
    assert means(one, value) == Missing(reason=why)


@pytest.mark.parametrize("value", ["2k", "1.5G", "7", "auto"])
def test_a_size_is_a_number_with_a_letter_or_one_of_its_words(value):
    assert refuses(of(Parse.SIZE, "auto"), value) is None


def test_what_is_not_understood_is_neither_taken_nor_refused_but_for_the_words_that_are_known():
    one = of(Parse.UNKNOWN, "O2")
    assert refuses(one, "O2") is None
    assert refuses(one, "2") == Missing(reason="how envs.py:1 reads it is not understood")
    assert isinstance(means(one, "O2"), Missing)


@pytest.mark.parametrize("off", [(), ("0",)])
def test_blanks_around_a_word_are_neither_taken_nor_refused(off):
    assert isinstance(refuses(of(Parse.BOOL_WORDS, "1", off=off), " 1 "), Missing)
    assert isinstance(means(of(Parse.BOOL_WORDS, "1", off=off), "1\t"), Missing)
    assert means(of(Parse.BOOL_INT), " 1 ") is True  # int() takes them


def test_what_the_source_makes_more_of_has_no_value_that_can_be_told():
    one = of(Parse.FLOAT, through="val if val > 0 else 10")
    assert refuses(one, "x") is not None
    assert means(one, "3") == Missing(reason="envs.py:1 makes more of it: val if val > 0 else 10")


@pytest.mark.parametrize(
    ("default", "value", "same"),
    [(False, "0", True), (True, "0", False), (None, "0", False), (Missing(reason="computed: x"), "0", None)],
)
def test_a_value_that_equals_the_default_is_told_from_being_unset(default, value, same):
    assert equals_default(of(Parse.BOOL_INT, default=default), value) is same


def test_a_number_is_not_a_truth():
    assert equals_default(of(Parse.INT, default=True), "1") is False


def test_a_setting_is_found_by_its_short_name_and_by_its_opposite():
    flag = replace(FLAG, aliases=("-x",))
    registry = Registry(owner="vllm", version="1", settings={"--x": flag, "VLLM_X": ONE})
    assert [registry.find(name) for name in ("--x", "-x", "--no-x", "--y")] == [flag, flag, flag, None]


def test_a_setting_is_dead_where_nothing_reads_it_and_not_where_nobody_looked():
    assert replace(ONE, read_in=()).is_dead
    assert not ONE.is_dead
    assert not replace(ONE, read_in=("a.py",)).is_dead


def test_any_text_is_taken_but_for_the_cache_which_vllm_looks_up():
    one = replace(ONE, choices=("auto", "fp8"), type="CacheDType | str | None")
    assert refuses(one, "fp8") is None
    assert refuses(one, "fp9") == "'fp9' is none of auto, fp8, and vLLM refuses what no plug-in registers"
    assert refuses(replace(one, type="ModelImpl | str"), "fp9") is None
