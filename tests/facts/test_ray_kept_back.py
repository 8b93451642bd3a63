import pytest

from fi_doctor.facts.ray import read_kept_back


@pytest.mark.parametrize(
    ("text", "names"),
    [('["NCCL_DEBUG", "HF_HOME"]', ("HF_HOME", "NCCL_DEBUG")), ("[]", ()), ("{", ()), ("7", ())],
    ids=["names", "none", "no JSON", "no list"],
)
@pytest.mark.parametrize("variable", ["VLLM_CONFIG_ROOT", "XDG_CONFIG_HOME", "HOME"])
def test_the_list_of_the_user_lies_where_vllm_looks_for_it(tmp_path, text, names, variable):
    below = {"VLLM_CONFIG_ROOT": "", "XDG_CONFIG_HOME": "vllm", "HOME": ".config/vllm"}[variable]
    folder = tmp_path / below
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "ray_non_carry_over_env_vars.json").write_text(text)
    assert read_kept_back({variable: str(tmp_path)}) == names


def test_without_a_list_nothing_is_held_back(tmp_path):
    assert read_kept_back({"HOME": str(tmp_path)}) == ()
