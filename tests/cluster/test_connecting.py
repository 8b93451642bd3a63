import contextlib
import socket
import threading

import pytest

from fi_doctor.cluster import connecting
from fi_doctor.errors import CannotTellError, UsageError


@contextlib.contextmanager
def listening(answer):
    """HOST:PORT of a server that says this to the first who comes, whatever it is told."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve():
            line, _ = server.accept()
            with line:
                line.recv(1024)
                line.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        thread.join()


def test_what_speaks_http_2_may_be_ray():
    with listening(bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))) as address:
        connecting.answers(address)


def test_a_web_server_is_no_ray():
    with listening(b"HTTP/1.0 400 Bad Request\r\n") as address, pytest.raises(CannotTellError) as error:
        connecting.answers(address)
    assert "HTTP/1.0 400" in error.value.why


def test_where_nobody_listens_it_is_told_at_once():
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
    with pytest.raises(CannotTellError) as error:
        connecting.answers(address)
    assert error.value.what == f"no Ray cluster answers at {address}"
    assert "refused" in error.value.why


def test_one_that_says_nothing_is_waited_for_no_longer_than_that():
    with socket.create_server(("127.0.0.1", 0)) as server, pytest.raises(CannotTellError) as error:
        connecting.answers(f"127.0.0.1:{server.getsockname()[1]}", timeout_s=0.05)
    assert error.value.why == "nothing was said within 0.05 s"


@pytest.mark.parametrize("address", ["", "head", "head:", "head:port", "head:70000", ":6379", "http://head:8265"])
def test_what_is_no_address_is_refused(address):
    with pytest.raises(UsageError):
        connecting.answers(address)


def test_another_ray_is_told_in_rays_own_words():
    words = "Version mismatch: The cluster was started with:\n    Ray: 2.40.0\n    Python: 3.12.3"
    error = connecting.refusal("head:6379", RuntimeError(words))
    assert "another Ray or another Python" in error.what
    assert "Ray: 2.40.0 Python: 3.12.3" in error.why
    assert "Python of the cluster" in error.todo


def test_other_refusals_keep_the_kind_of_error():
    error = connecting.refusal("head:6379", ConnectionError("gone"))
    assert error.what == "Ray cannot enter the cluster at head:6379"
    assert connecting.refusal("head:6379", ValueError("no")).why == "ValueError: no"
    assert error.why.startswith("ConnectionError: gone; something listens there")
    assert "6379 unless --port is given" in error.why
    assert "ray://HOST:10001" in error.todo
    assert "perhaps not the server of Ray's client" in connecting.refusal("ray://head:6379", ConnectionError()).why


def test_without_ray_it_is_said_what_to_install(monkeypatch):
    def no_ray(name):
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    monkeypatch.setattr(connecting.importlib, "import_module", no_ray)
    with pytest.raises(UsageError) as error, connecting.connected("auto"):
        raise AssertionError
    assert "No module named 'ray'" in error.value.why
    assert "-m pip install 'ray[client]'," in error.value.todo
    assert "--reports" in error.value.todo
