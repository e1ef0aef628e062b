"""What can go wrong, as a tree.

    NgbkitError
    ├── UsageError (ValueError)      what was asked for cannot be done as asked
    │   ├── UnknownNameError         no compiler, device, model, factor, option of that name
    │   ├── WorkloadError            the network cannot be built, exported or fed
    │   └── RunNotFoundError         no run of that id
    ├── MissingDependencyError (ImportError)   an optional part is not installed
    ├── UnsupportedError             a compiler cannot do this network, here, and says why
    ├── JournalError
    │   └── FencedError              another process holds the journal
    ├── DeviceError                  an engine, a child or a link was lost
    └── MetricError (ValueError)     a metric lacks the trial it is relative to

Every message says what came, what is valid and what to do next. Nothing here prints or exits.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class NgbkitError(Exception):
    """The root of every error that ngbkit raises on purpose."""


class UsageError(NgbkitError, ValueError):
    """What was asked for cannot be done as asked."""


class UnknownNameError(UsageError):
    """A name that nothing answers to.

    Parameters
    ----------
    kind
        What was looked up, in the singular: ``"compiler"``.
    name
        What came.
    known
        Every valid name.
    hint
        Where to look next, a full sentence.
    """

    def __init__(self, kind: str, name: str, known: Iterable[str], hint: str = "") -> None:
        self.kind, self.name, self.known, self.hint = kind, name, sorted(known), hint
        super().__init__(self._message())

    def __reduce__(self) -> tuple[type, tuple[object, ...]]:
        return type(self), (self.kind, self.name, self.known, self.hint)

    def _message(self) -> str:
        near = nearest(self.name, self.known)
        if near:
            valid = f"Did you mean {_either(near)}?"
        elif not self.known:
            valid = f"There is no {self.kind} at all."
        elif len(self.known) <= 12:
            valid = f"Valid: {', '.join(self.known)}."
        else:
            valid = f"There are {len(self.known)}, none of a similar name."
        return " ".join(filter(None, [f"unknown {self.kind} {self.name!r}.", valid, self.hint]))


class WorkloadError(UsageError):
    """A network that cannot be built, exported or fed.

    Attributes
    ----------
    traceback : str
        The traceback of the user's own code, with the user's own line numbers; empty where there is none.
    """

    def __init__(self, message: str, traceback: str = "") -> None:
        super().__init__(message)
        self.traceback = traceback

    def __reduce__(self) -> tuple[type, tuple[object, ...]]:
        return type(self), (self.args[0], self.traceback)


class RunNotFoundError(UsageError):
    """No run of that id."""


class MissingDependencyError(NgbkitError, ImportError):
    """An optional part of ngbkit is not installed.

    Parameters
    ----------
    package
        What could not be imported.
    extra
        The extra of ngbkit that brings it.
    """

    def __init__(self, package: str, extra: str) -> None:
        self.package, self.extra = package, extra
        super().__init__(f"{package} is not installed. Install it with: pip install 'ngbkit[{extra}]'")

    def __reduce__(self) -> tuple[type, tuple[object, ...]]:
        return type(self), (self.package, self.extra)


class UnsupportedError(NgbkitError):
    """A compiler cannot do this network here. The message is the reason; the trial's status is ``unsupported``."""


class JournalError(NgbkitError):
    """A journal cannot be read or written."""


class FencedError(JournalError):
    """Another process holds the journal: an engine that was thought dead may still be measuring."""


class DeviceError(NgbkitError):
    """An engine, a child process or the link to them was lost."""


class MetricError(NgbkitError, ValueError):
    """A metric lacks the trial that it is relative to; the message names the trial to add."""


def nearest(name: str, known: Iterable[str], most: int = 3) -> list[str]:
    """The known names most like `name`, best first, at most `most` of them."""
    by_fold = {candidate.lower(): candidate for candidate in known}
    matches = difflib.get_close_matches(name.lower(), by_fold, n=most, cutoff=0.6)
    return [by_fold[match] for match in matches]


def _either(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} or {names[-1]}"
