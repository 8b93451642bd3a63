"""Which architectures a release has: known by its own files, and by nothing else."""

import pytest
from msgspec.structs import replace

from fi_doctor import choosing
from fi_doctor.facts.served_model import model_of
from fi_doctor.knowledge import architectures, examples, models
from fi_doctor.model import Deployment
from fi_doctor.model.deployed import Wanted
from fi_doctor.reports import document


@pytest.mark.parametrize(
    ("name", "version", "is_known"),
    [
        ("LlamaForCausalLM", "0.33.0", True),
        ("LlamaForCausalLM", "0.14.0", True),
        ("LlamaForCausalLM", "0.33.1.dev5+gabc", True),
        ("LlamaForCausalLM", "0.26.0", True),
        ("DeepseekV4ForCausalLM", "0.33.0", True),
        ("DeepseekV4ForCausalLM", "0.14.1", False),  # of a later release
        ("TotallyUnknownForCausalLM", "0.33.0", False),
        ("", "0.33.0", False),
    ],
)
def test_what_a_release_has(name, version, is_known):
    assert bool(architectures.lacks(name, version)) is not is_known


def test_what_is_known_of_models_is_served_by_the_last_release():
    for name in models.presets():
        [architecture] = models.config_of(name)["architectures"]
        assert architectures.lacks(architecture, "0.33.0") == ""


def test_of_an_architecture_that_is_not_known_no_choice_is():
    config = models.config_of("llama-3.1-8b")
    facts = document.read(examples.data("h200"), "an example").facts
    wanted = Wanted(model=model_of(config, "a", "b"), deployment=Deployment(), config=config)
    assert isinstance(choosing.by_table(wanted, facts, 90), tuple)
    other = replace(wanted, model=replace(wanted.model, architecture="TotallyUnknownForCausalLM"))
    assert "to have the architecture 'TotallyUnknownForCausalLM'" in choosing.by_table(other, facts, 90).reason
