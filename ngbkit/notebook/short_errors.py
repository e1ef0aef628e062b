"""Errors as the magics raise them: in the words of magics, and displayed without ngbkit's own traceback."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ngbkit import files
from ngbkit.runs.progress_display import explain_failure

if TYPE_CHECKING:
    from ngbkit.runs import Run


class HelpRequested(Exception):
    """The user asked for the help of a magic, as in a shell."""


def raise_failure(run: Run) -> None:
    """Raise the error of a run, or the reason why none of its trials gave a result, with the user's own traceback."""
    if error := run.error or explain_failure(run):
        raise error


@contextmanager
def shorten_errors() -> Iterator[None]:
    """Raise an error that every front end displays and stores as its message alone; or print the help."""
    try:
        yield
    except HelpRequested as request:
        print(request)  # noqa: T201  as a shell does
    except Exception as error:
        explained = files.explain(error)
        if explained is None:
            raise
        explained.place = "magic"
        raise explained from None
