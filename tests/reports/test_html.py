"""The page: whole without network and script, nothing in it obeyed, readable in light and dark, small and quick."""

from __future__ import annotations

import base64
import hashlib
import html.parser
import itertools
import pathlib
import re
import time

import pytest
from hostile_reports import everywhere
from msgspec.structs import replace
from report_samples import SAMPLES, all_good, broken_toolkit, one_variant_broken, two_sms

from fi_doctor import reports
from fi_doctor.model import BuildCost, Builds, Missing
from fi_doctor.model.choices import Choice, Rejected
from fi_doctor.model.deployed import Deployed, Effect, Part
from fi_doctor.model.deployments import AttentionLayers, Deployment, ServedModel
from fi_doctor.reports import document, render

MACHINES = pathlib.Path(__file__).parents[1] / "machines"
PAGE = pathlib.Path(reports.__file__).parent / "page"
STYLE = (PAGE / "report.css").read_text(encoding="utf-8")
VOID = {"meta", "rect", "img", "br", "wbr"}


class Elements(html.parser.HTMLParser):
    """Every element with its attributes, and those that are open."""

    def __init__(self, text):
        super().__init__()
        self.found, self.open = [], []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def deployed():
    """A report that names a model, of whose attention a candidate was refused."""
    choice = Choice(
        operator="attention",
        layers="window layers",
        chosen="FLASHINFER",
        is_flashinfer=True,
        rejected=(Rejected(name="FLASH_ATTN", why="no <sinks>"),),
        predicted="FLASH_ATTN",
    )
    served = Deployed(
        model=ServedModel(
            name="gpt-oss",
            source="config.json",
            architecture="GptOss",
            model_type="gpt_oss",
            dtype="bfloat16",
            hidden_size=2880,
            attention=(AttentionLayers(kind="window", count=12),),
        ),
        deployment=Deployment(),
        sm=90,
        vllm=Missing(reason="not installed"),
        effect=Effect.FAILS,
        why="attention does not compile",
        parts=(Part(choice=choice, effect=Effect.FAILS, why="it is broken here"),),
        notes=("no LoRA was looked at",),
    )
    return replace(all_good(), deployed=served)


def compiled(seconds=60.0):
    costs = {"sampling": BuildCost(seconds=seconds, objects=3), "page": BuildCost(seconds=30.0, objects=1)}
    return replace(all_good(), builds=Builds(costs=costs, jobs=4, seconds=seconds))


@pytest.mark.parametrize("name", SAMPLES)
def test_every_element_is_closed_and_every_link_leads_somewhere(name):
    page = Elements(render(SAMPLES[name](), "html"))
    assert page.open == []
    ids = [attrs["id"] for _, attrs in page.found if "id" in attrs]
    assert len(ids) == len(set(ids))
    assert {attrs["href"][1:] for tag, attrs in page.found if tag == "a"} <= set(ids)


@pytest.mark.parametrize("name", SAMPLES)
def test_hostile_text_in_every_field_is_text_and_nothing_else(name):
    text = render(everywhere(name), "html")
    plain, hostile = (Elements(one) for one in (render(SAMPLES[name](), "html"), text))
    assert hostile.open == []
    assert {tag for tag, _ in hostile.found} <= {tag for tag, _ in plain.found} | {"div", "wbr", "nav", "code", "pre"}
    assert not {name for _, attrs in hostile.found for name in attrs if name.startswith("on")}
    assert [tag for tag, _ in hostile.found].count("script") == 1
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u200b\u202e\udcff]", text)
    assert "49" not in "".join(line for line in text.splitlines() if "{{7*7}}" not in line and "alert" in line)


def test_nothing_is_asked_of_the_network_and_only_our_own_style_and_script_may_act():
    text = render(deployed(), "html")
    page = Elements(text)
    for _, attrs in page.found:
        assert not {"src", "srcset", "action", "style", "background"} & attrs.keys()
        assert attrs.get("href", "#").startswith("#")
    assert not re.search(r"url\(|@import|https?:", STYLE)
    [policy] = [attrs["content"] for _, attrs in page.found if attrs.get("http-equiv") == "Content-Security-Policy"]
    rules = dict(rule.split(" ", 1) for rule in policy.split("; "))
    assert rules["default-src"] == rules["base-uri"] == rules["form-action"] == "'none'"
    for kind in ("style", "script"):
        inside = re.search(rf"<{kind}>(.*?)</{kind}>", text, re.DOTALL)[1]
        digest = base64.b64encode(hashlib.sha256(inside.encode()).digest()).decode()
        assert rules[f"{kind}-src"] == f"'sha256-{digest}'"


def test_the_answer_comes_first_and_buttons_come_with_the_script_only():
    text = render(broken_toolkit(), "html")
    body = text[text.index("<body>") :]
    order = ["<h1>", "<b>Exit 1</b>", 'id="todo"', 'id="matrix"', 'id="findings"', 'id="failures"', 'id="gate"']
    places = [body.index(one) for one in order]
    assert places == sorted(places)
    assert "<button" not in text
    assert "<script" in text


def test_what_is_there_to_be_copied_is_whole_however_long_it_is():
    long = "export X=" + "/very/long" * 900
    [first, *others] = broken_toolkit().recommendations
    text = render(replace(broken_toolkit(), recommendations=(replace(first, line=long), *others)), "html")
    assert f"<code>{long}</code>" in text


def test_cells_stand_in_their_row_with_how_they_are_known():
    text = render(one_variant_broken(), "html")
    [row] = re.findall(r'<details id="norm.rmsnorm-on-SM90">.*?</details>', text, re.DOTALL)
    assert re.search(r'<tr><th scope="row">float32</th><td><b class="verdict broken">broken</b></td>', row)
    assert '<span class="evidence verified">verified</span>' in row


def test_kinds_of_gpu_are_told_apart_where_there_are_several():
    assert "<i>SM121</i>" in render(two_sms(), "html")
    assert "<i>SM90</i>" not in render(all_good(), "html")


def test_a_deployment_is_answered_before_the_rows():
    text = render(deployed(), "html")
    assert text.index("gpt-oss: attention does not compile") < text.index("<h1>")
    assert text.count('<b class="verdict broken">fails</b>') == 2
    assert "<b>FLASHINFER</b>; FLASH_ATTN was predicted" in text
    assert "not FLASH_ATTN: no &lt;sinks&gt;" in text
    assert "not known: no LoRA was looked at" in text
    assert 'id="deployment"' not in render(all_good(), "html")


@pytest.mark.parametrize(("seconds", "longest"), [(60.0, "1000.0"), (float("inf"), "0.0"), (float("nan"), "0.0")])
def test_bars_are_as_long_as_it_took_and_nothing_where_that_is_no_time(seconds, longest):
    text = render(compiled(seconds), "html")
    widths = re.findall(r'<rect class="built" x="0.0" width="([\d.]+)"', text)
    assert sorted(widths) == sorted([longest, "500.0" if seconds == 60 else "1000.0"])


def test_the_largest_recorded_report_is_small_and_quick():
    path = max(MACHINES.glob("*/*.json"), key=lambda one: one.stat().st_size)
    recorded = document.read_file(path)
    before = time.process_time()
    text = render(recorded, "html")
    assert time.process_time() - before <= 1
    assert 50_000 < len(text.encode()) <= 400 * 1024


def colours(block):
    return dict(re.findall(r"--([a-z]+): (#[0-9a-f]{3,6});", block))


def luminance(colour):
    digits = colour[1:] if len(colour) == 7 else "".join(2 * one for one in colour[1:])
    parts = [int(digits[at : at + 2], 16) / 255 for at in (0, 2, 4)]
    linear = [one / 12.92 if one <= 0.04045 else ((one + 0.055) / 1.055) ** 2.4 for one in parts]
    return sum(share * one for share, one in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


LIGHT, DARK, PRINT = (colours(block) for block in re.findall(r":root \{(.*?)\}", STYLE, re.DOTALL))
TEXTS, GROUNDS = ("text", "quiet", "accent", "good", "bad", "wrong", "open", "none"), ("page", "raised", "sunk")


@pytest.mark.parametrize("scheme", [LIGHT, DARK, PRINT], ids=["light", "dark", "print"])
def test_every_text_has_the_contrast_of_wcag_aa(scheme):
    for front, back in itertools.product(TEXTS, GROUNDS):
        darker, lighter = sorted((luminance(scheme[front]), luminance(scheme[back])))
        assert (lighter + 0.05) / (darker + 0.05) >= 4.5, (front, back)
