"""The exceptions and the warning of ngbkit.

    NgbkitError
    ├── UsageError (ValueError)      an invalid request
    │   ├── UnknownNameError         no compiler, device, model, factor or option has that name
    │   ├── WorkloadError            the network cannot be built, exported or fed
    │   └── RunNotFoundError         no run has that id
    ├── MissingDependencyError (ImportError)   an optional part is not installed
    ├── UnsupportedError             a compiler cannot compile this network here; the message is the reason
    ├── JournalError
    │   └── FencedError              another process has locked the journal
    ├── DeviceError                  an engine, a child process or a link was lost
    │   └── DiskError                a disk that ngbkit writes to is full or read-only: no trial is at fault
    └── MetricError (ValueError)     a metric lacks the trial that it is relative to

    RunInterruptedError (KeyboardInterrupt)   Ctrl-C stopped a run, which can be resumed
    NgbkitWarning (UserWarning)      what is left out or not comparable, where the rest is still valid

Every message reports the value received, the valid values and the next step: a command of the shell in backticks,
which `translate_commands` writes as the reader types it elsewhere. What a user wrote is clipped if it is too long to
read. Nothing here prints or exits.
"""

from __future__ import annotations

import difflib
import functools
import itertools
import re
import sys
import sysconfig
import traceback
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from importlib import import_module, metadata
from importlib.machinery import PathFinder
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

_PACKAGE = Path(__file__).parent
_LIBRARIES = frozenset({"site-packages", "dist-packages"})
_LISTED = 12  # An error lists at most this many valid names.
# A longer word or quotation is clipped, to its beginning and its end.
_LONGEST, _HEAD, _TAIL = 200, 120, 60
# Short quotations too, so that none of their ends is the beginning of another.
_CLIPPED = re.compile(rf"""(?<!\w)'(?:[^'\\\n]|\\.)*'(?!\w)|(?<!\w)"(?:[^"\\\n]|\\.)*"(?!\w)|\S{{{_LONGEST + 1},}}""")

_ESCAPE_SEQUENCE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])")
# Control characters but tabs and line breaks, marks that reverse what follows, and what neither UTF-8 nor XML has.
_CONTROL = re.compile("[^\t\n\x20-\x7e\xa0-\u2029\u202f-\u2065\u206a-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")

Place = Literal["magic", "python"]
"""The reader's place: the magics of a notebook, or Python's own lines in it."""
_COMMAND = re.compile(r"`ngbkit (?P<command>[a-z]+)(?P<arguments>(?: [^`]*)?)`")
_COMMANDS = "ngbkit.commands"  # the entry points of their records


class NgbkitError(Exception):
    """The root of every error that ngbkit raises on purpose; a notebook shows it with the user's line alone."""

    # Set by the magic that raises it: its message then proposes magics, wherever it is read.
    place: Place | None = None

    def __str__(self) -> str:
        message = clip(strip_controls(super().__str__()))
        return translate_commands(message, self.place) if self.place else message

    def _render_traceback_(self) -> list[str]:
        """Render the error for IPython, which would show ten lines of each frame, most of them ngbkit's own."""
        block: str = getattr(self, "traceback", "")
        frame = None if self.place else _find_user_frame(traceback.extract_tb(self.__traceback__))
        line = [f"line {frame.lineno}: {frame.line}"] if frame and frame.line else []
        message = translate_commands(str(self), "python")
        return [*block.splitlines(), *line, f"{type(self).__name__}: {message}"]


class RunInterruptedError(KeyboardInterrupt):
    """Ctrl-C stopped a run: the message says how to resume it. IPython shows it without a traceback."""

    def __init__(self, message: str, place: Place = "python") -> None:
        super().__init__(translate_commands(message, place))

    def _render_traceback_(self) -> list[str]:
        return [f"KeyboardInterrupt: {self}"]


class NgbkitWarning(UserWarning):
    """A warning of ngbkit; IPython shows it in the words of Python, as it does an error."""

    def __str__(self) -> str:
        message, ipython = clip(strip_controls(super().__str__())), sys.modules.get("IPython")
        is_in_ipython = ipython is not None and ipython.get_ipython() is not None
        return translate_commands(message, "python") if is_in_ipython else message


class UsageError(NgbkitError, ValueError):
    """An invalid request."""


class UnknownNameError(UsageError):
    """An unknown name."""

    def __init__(
        self,
        kind: str,  # in the singular: "compiler"
        name: str,  # as received
        choices: Iterable[str],  # every valid name
        hint: str = "",  # a full sentence with the next step
        synonyms: Mapping[str, str] = MappingProxyType({}),  # in lower case, each with the valid name
    ) -> None:
        self.kind, self.name, self.choices, self.hint = kind, name, sorted(choices), hint
        self.synonyms = dict(synonyms)
        super().__init__(self._build_message())

    def __reduce__(self) -> tuple[type, tuple[object, ...]]:
        return type(self), (self.kind, self.name, self.choices, self.hint, self.synonyms)

    def _build_message(self) -> str:
        synonym = self.synonyms.get(self.name.lower(), "")
        matches = [synonym] if synonym in self.choices else find_nearest(self.name, self.choices)
        if matches:
            expected = f"Did you mean {join_or(matches)}?"
        elif not self.choices:
            expected = f"No {self.kind} is available."
        elif len(self.choices) <= _LISTED:
            expected = f"Expected {'one of ' if len(self.choices) > 1 else ''}{', '.join(self.choices)}."
        else:
            expected = f"None of the {len(self.choices)} valid names is similar."
        return " ".join(filter(None, [f"unknown {self.kind} {self.name!r}.", expected, self.hint]))


class WorkloadError(UsageError):
    """A network cannot be built, exported or fed."""

    def __init__(self, message: str, traceback: str = "") -> None:
        super().__init__(message)
        self.traceback = traceback  # of the user's own code, with its line numbers; empty if no such code raised

    def __reduce__(self) -> tuple[type, tuple[object, ...]]:
        return type(self), (self.args[0], self.traceback)


class RunNotFoundError(UsageError):
    """No run has that id."""


class MissingDependencyError(NgbkitError, ImportError):
    """An optional part of ngbkit is not installed: a package, which an extra of ngbkit installs."""

    def __init__(self, package: str, extra: str) -> None:
        self.package, self.extra = package, extra
        super().__init__(
            describe_hidden(package.replace("-", "_"))
            or f"{package} is not installed. Install it with: pip install 'ngbkit[{extra}]'"
        )

    def __reduce__(self) -> tuple[type, tuple[object, ...]]:
        return type(self), (self.package, self.extra)


def import_optional(module: str, package: str, extra: str) -> Any:
    """Import a module of an optional package, or raise the error that names the extra of ngbkit that installs it."""
    try:
        return import_module(module)
    except ImportError as error:
        raise MissingDependencyError(package, extra) from error


class UnsupportedError(NgbkitError):
    """A compiler cannot compile this network here: the message is the reason, the trial's status ``unsupported``."""


class JournalError(NgbkitError):
    """A journal cannot be read or written."""


class FencedError(JournalError):
    """Another process has locked the journal: an engine that was presumed dead may still be measuring."""


class DeviceError(NgbkitError):
    """An engine, a child process or the link to them was lost."""


class DiskError(DeviceError):
    """A disk that ngbkit writes to is full or read-only: no trial is at fault, and a resumed run tries it again."""


class MetricError(NgbkitError, ValueError):
    """A metric lacks the trial that it is relative to; the message names the trial to add."""


def _find_user_frame(frames: Iterable[traceback.FrameSummary]) -> traceback.FrameSummary | None:
    """The last frame of the user's code before ngbkit was called."""
    callers = itertools.takewhile(lambda frame: not Path(frame.filename).is_relative_to(_PACKAGE), frames)
    return next((frame for frame in reversed(list(callers)) if _LIBRARIES.isdisjoint(Path(frame.filename).parts)), None)


def translate_commands(text: str, place: Place) -> str:
    """Write the commands in a text, ``ngbkit …`` in backticks, as its reader types them in a notebook.

    A command without a magic or a call is one of the shell, which a notebook runs after a ``!``.

    >>> translate_commands("`ngbkit runs` lists all runs.", "magic")
    '`%ngruns` lists all runs.'
    """

    def translate(match: re.Match[str]) -> str:
        command, arguments = match["command"], match["arguments"]
        magic, calls = _find_equivalents(command)
        option, *values = words if (words := arguments.split()) and words[0] in calls else ["", *words]
        call = calls.get(option, "")
        if place == "python" and call and len(values) == call.count("{}"):
            return f"`{call.format(*values)}`"
        return f"`{magic if place == 'magic' and magic else f'!ngbkit {command}'}{arguments}`"

    return _COMMAND.sub(translate, text)


@functools.cache
def _find_equivalents(command: str) -> tuple[str, Mapping[str, str]]:
    """Find the magic and the calls of Python that do what a command does, in its record; empty where there are none."""
    for entry_point in metadata.entry_points(group=_COMMANDS, name=command):
        with suppress(Exception):  # of a broken plugin; `ngbkit --help` warns about it
            record = entry_point.load()
            return record.typed_in_magic, record.in_python
    return "", {}


def strip_controls(text: str) -> str:
    """Return foreign text as a terminal may print it, and a picture may have it: without escape sequences and controls.

    >>> strip_controls("a\\x1b[2Jb\\x07")
    'ab '
    """
    return _CONTROL.sub(" ", _ESCAPE_SEQUENCE.sub("", text))


def clip(text: str) -> str:
    """Shorten each word and each quotation of a text that is too long to read to its beginning and its end.

    >>> len(clip(f"unknown network {5000 * 'n'!r}."))
    198
    """

    def shorten(match: re.Match[str]) -> str:
        part = match[0]
        return part if len(part) <= _LONGEST else f"{part[:_HEAD]}…{part[-_TAIL:]}"

    return _CLIPPED.sub(shorten, text)


def describe_hidden(module: str) -> str:
    """Describe the user's file that Python imports in place of a module of its own or of a package; empty if none."""
    specs = (PathFinder.find_spec(module, [entry]) for entry in sys.path)
    files = [spec.origin for spec in specs if spec is not None and spec.origin is not None]
    is_hidden = len(set(files)) > 1 and module not in sys.builtin_module_names
    if not is_hidden or _LIBRARIES & set(Path(files[0]).parts) or files[0].startswith(sysconfig.get_path("stdlib")):
        return ""
    return f"invalid file name: got {files[0]}, which hides the module {module}. Rename it, and start Python again."


def find_nearest(name: str, choices: Iterable[str]) -> list[str]:
    """Find the three choices most similar to `name`, best first, whatever their case."""
    by_fold = {choice.lower(): choice for choice in choices}
    matches = difflib.get_close_matches(name.lower(), by_fold, n=3, cutoff=0.6)
    return [by_fold[match] for match in matches]


def join_or(names: Sequence[str]) -> str:
    """Join the alternatives of a sentence: ``a, b or c``."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} or {names[-1]}"
