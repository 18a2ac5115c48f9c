"""Reading and writing of document files."""

from __future__ import annotations

import os
import tempfile
from os import PathLike
from pathlib import Path

from deeppool.errors import InputError


def read_text(path: str | PathLike[str]) -> str:
    """Returns the content of a file, without a byte order mark.

    Raises:
        InputError: The file cannot be read, or is not UTF-8. The message names it.
    """
    try:
        return Path(path).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise InputError(f"{os.fspath(path)}: {reason}") from error


def write_text(path: str | PathLike[str], text: str) -> None:
    """Writes a file atomically: a reader sees the old or the new content.

    Raises:
        InputError: The file cannot be written. The message names it.
    """
    path = Path(path)
    try:
        if path.exists() and not path.is_file():
            # Write to pipes and devices; replace regular files only.
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
