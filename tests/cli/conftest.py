import signal

import cli_command
import forking
import pytest


@pytest.fixture(scope="session")
def forked(tmp_path_factory):
    started = forking.Forked(cli_command.environment(home=tmp_path_factory.mktemp("home")))
    yield started
    started.close()


@pytest.fixture
def doctor(tmp_path, forked):
    return cli_command.Command(tmp_path, forked)


@pytest.fixture(autouse=True)
def _signals():
    """Children are born as in a terminal, also under nohup: only what is ignored would be inherited."""
    ignored = [one for one in (signal.SIGHUP, signal.SIGINT) if signal.getsignal(one) is signal.SIG_IGN]
    for number in ignored:
        signal.signal(number, lambda *_: None)
    yield
    for number in ignored:
        signal.signal(number, signal.SIG_IGN)
