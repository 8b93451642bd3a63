"""A machine is read again for a process that has a variable more."""

from environment_on_disk import Environment, toolkit

from fi_doctor.facts import Gathering
from fi_doctor.model import Missing
from fi_doctor.model.assignments import Assignment


def test_what_variables_change_is_read_anew_and_the_rest_is_taken_over(tmp_path):
    environment = Environment(tmp_path)
    other = tmp_path / "other"
    toolkit(other, "12.9")
    calls = Missing(reason="read once")
    first = Gathering(
        str(environment.python), environment.environ, asks_cuda=False, calls=lambda _: calls, libraries=lambda *_: {}
    )
    before = first.finish()
    second = first.again((Assignment("CUDA_HOME", str(other)),), before)
    after = second.finish()
    assert (after.toolkit.jit.cuda_home, after.environment["CUDA_HOME"]) == (str(other), str(other))
    assert second.environ == {**first.environ, "CUDA_HOME": str(other)}
    assert before.toolkit.jit.cuda_home != str(other)
    assert (after.calls, after.packages) == (calls, before.packages)
