"""The standard streams of a program: open, able to print any text, and with clear errors."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Iterator

from ngbkit.errors import NgbkitError
from ngbkit.user_text import PLAIN, fit_output


class OutputError(NgbkitError):
    """The standard output takes no more text."""


def open_streams() -> None:
    """Open the standard streams that this process was started without, whose places its next files would take."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            # The lowest free number is the stream's own.
            os.open(os.devnull, os.O_WRONLY if number == 2 else os.O_RDONLY)
    sys.stdout = sys.stdout or os.fdopen(1, "w", encoding="utf-8", closefd=False)
    sys.stderr = sys.stderr or os.fdopen(2, "w", encoding="utf-8", closefd=False)


def replace_signs() -> None:
    """Replace the signs that the encoding of the standard output lacks, in whatever is printed from now on."""
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.encoding.lower() != "utf-8":
        sys.stdout.reconfigure(errors=PLAIN)


@contextlib.contextmanager
def hold_output() -> Iterator[None]:
    """Hold what the block prints on the standard output, and write it at the end of the block, however that ends.

    Signs that the encoding of the output lacks are replaced. BrokenPipeError: the reader of the output has left.
    OutputError: the output cannot be written for another reason.
    """
    buffer = io.StringIO()
    try:
        with contextlib.redirect_stdout(buffer):
            yield
    finally:
        if text := buffer.getvalue():  # nothing can be written even to a terminal that was closed
            _write(text)


def _write(text: str) -> None:
    output = sys.stdout
    try:
        output.write(fit_output(text))
        output.flush()
    except OSError as error:
        # Or Python would fail once more when it flushes at exit.
        with contextlib.suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), output.fileno())
        if isinstance(error, BrokenPipeError):
            raise
        raise OutputError(
            f"cannot write to the standard output: {error.strerror or error}. Redirect it to another place; what was "
            "measured is kept, and `ngbkit runs` lists it."
        ) from error
