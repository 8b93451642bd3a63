import signal

import cli_command
import pytest


@pytest.fixture
def doctor(tmp_path):
    return cli_command.Command(tmp_path)


@pytest.fixture(autouse=True)
def _signals():
    """Children are born as in a terminal, also under nohup: only what is ignored would be inherited."""
    ignored = [one for one in (signal.SIGHUP, signal.SIGINT) if signal.getsignal(one) is signal.SIG_IGN]
    for number in ignored:
        signal.signal(number, lambda *_: None)
    yield
    for number in ignored:
        signal.signal(number, signal.SIG_IGN)
