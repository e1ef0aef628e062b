"""Errors as the magics show them: a line without ngbkit's own traceback."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from IPython.core import error as ipython

from ngbkit.errors import NgbkitError, translate_commands
from ngbkit.runs.progress_display import explain_failure

if TYPE_CHECKING:
    from ngbkit.runs import Run


class HelpRequested(Exception):
    """The user asked for the help of a magic, as in a shell."""


class RunInterruptedError(KeyboardInterrupt):
    """Ctrl-C stopped a run: later cells must not run on half a dataset. IPython shows it without a traceback."""

    def _render_traceback_(self) -> list[str]:
        return [f"KeyboardInterrupt: {translate_commands(str(self), 'magic')}"]


def raise_failure(run: Run) -> None:
    """Raise the error of a run, or the reason why none of its trials gave a result, with the user's own traceback."""
    if error := run.error or explain_failure(run):
        raise error


@contextmanager
def shorten_errors() -> Iterator[None]:
    """Show an error as one line, after the traceback of the user's own code if there is one; or print the help."""
    try:
        yield
    except HelpRequested as request:
        print(request)  # noqa: T201  as a shell does
    except NgbkitError as error:
        traceback: str = getattr(error, "traceback", "")
        if traceback:
            sys.stderr.write(traceback if traceback.endswith("\n") else f"{traceback}\n")
        raise ipython.UsageError(translate_commands(str(error), "magic")) from None
