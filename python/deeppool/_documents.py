"""Documents as files."""

from __future__ import annotations

import os
import tempfile
from os import PathLike
from pathlib import Path

from deeppool.errors import InputError


def read_text(path: str | PathLike[str]) -> str:
    """What a file holds, or an error that names it."""
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise InputError(f"{os.fspath(path)}: {reason}") from error


def write_text(path: str | PathLike[str], text: str) -> None:
    """Writes a file whole or not at all."""
    path = Path(path)
    try:
        if path.exists() and not path.is_file():
            # A pipe or a device is written to, never replaced.
            path.write_text(text, encoding="utf-8")
            return
        target = path.resolve()
        with tempfile.NamedTemporaryFile("w", encoding="utf-8", dir=target.parent, delete=False) as part:
            part.write(text)
        try:
            if target.exists():
                os.chmod(part.name, target.stat().st_mode & 0o777)
            else:
                mask = os.umask(0)
                os.umask(mask)
                os.chmod(part.name, 0o666 & ~mask)
            os.replace(part.name, target)
        except OSError:
            os.unlink(part.name)
            raise
    except OSError as error:
        raise InputError(f"{os.fspath(path)}: {error.strerror}") from error
