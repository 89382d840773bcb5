"""A project that commands run, and commands that are to fail."""

import pytest
from command_samples import MODEL

from byoc_hw import __main__ as cli


@pytest.fixture(scope="session")
def built(tmp_path_factory):
    """The digits project; a test that changes it takes a copy."""
    directory = tmp_path_factory.mktemp("cli") / "digits"
    assert cli.main(["build", MODEL, "--output-dir", str(directory), "--mod-name", "digits"]) == 0
    return directory


@pytest.fixture
def ended(capfd):
    """Run a command that is to fail: its exit code and the one line that it left on stderr."""

    def run(*arguments):
        code = cli.main([str(argument) for argument in arguments])
        out, error = capfd.readouterr()
        assert out == ""
        assert error.startswith("byoc_hw: error: ")
        assert error.count("\n") == 1, error
        return code, error

    return run
