"""The command `deeppool` for tests that compare the package with it."""

import os
import subprocess
from pathlib import Path

import pytest

BIN = Path(os.environ.get("DEEPPOOL_BIN", Path(__file__).resolve().parents[2] / "target/debug/deeppool"))
#: Mark of a test that needs the command.
needs_command = pytest.mark.skipif(
    not BIN.exists(), reason=f"there is no {BIN.name}: cargo build -p deeppool-cli, or DEEPPOOL_BIN=PATH"
)


def deeppool(folder, *arguments):
    """Runs the command in a folder, and returns its output."""
    command = [str(BIN), *map(str, arguments)]
    result = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert result.returncode == 0, f"{' '.join(command)}: {result.stderr}"
    return result.stdout
