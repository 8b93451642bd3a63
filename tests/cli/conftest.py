import cli_command
import pytest


@pytest.fixture
def doctor(tmp_path):
    return cli_command.Command(tmp_path)
