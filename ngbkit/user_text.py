"""Texts of users, parsed, cleaned and formatted in one place: paths, durations, values of factors, JSON, TOML."""

from __future__ import annotations

import ast
import codecs
import inspect
import json
import math
import os
import re
import sys
import textwrap
import unicodedata
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from ngbkit.errors import UsageError, strip_controls

# Of Linux: a name in a folder, and a whole path.
_LONGEST_NAME, _LONGEST_PATH = 255, 4095
_UNITS = {"": 1.0, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0}
# From the largest: the first of which a time is at least one.
_SHORT_UNITS = (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6))
# A century: beyond it, a slip of the pen.
LONGEST_S = 3.2e9
_LONGEST_DURATION = 80
_DURATION = re.compile(rf"(.*?)\s*({'|'.join(_UNITS)})", re.DOTALL)
# JSON that nests deeper than this is not ours; Python's own limit is near 1000.
MAX_DEPTH = 50
MAX_LINE = 2000
# A traceback and the end of a log have less than half of this.
MAX_TEXT = 200_000
_LAYOUT = {ord("\n"): None, ord("\t"): None}
#: Replaces the signs that an encoding lacks: see `codecs.register_error`.
PLAIN = "ngbkit.plain"
_SIGNS = {"±": "+-", "×": "x", "µ": "u", "–": "-", "—": "-", "…": "...", "≤": "<=", "≥": ">=", "→": "->"}


def read_docstring(documented: Any) -> str:
    """Read the docstring of a module, class or function: from its source where Python dropped it (``-OO``)."""
    if documented.__doc__:
        return str(documented.__doc__)
    tree = ast.parse(textwrap.dedent(inspect.getsource(documented)))
    node: Any = tree if inspect.ismodule(documented) else tree.body[0]
    return ast.get_docstring(node) or ""


def parse_path(path: str | os.PathLike[str]) -> Path:
    """Read the path of a file or a folder, which need not exist; ``~`` is the home folder of the user.

    UsageError: there is no such home folder, or no file can have this path.
    """
    text = os.fspath(path)
    try:
        parsed = Path(text).expanduser()
    except RuntimeError:
        raise UsageError(f"invalid path: got {text!r}, and there is no such home folder. Write it in full.") from None
    if not text:
        raise UsageError("invalid path: got an empty one. Name a file or a folder.")
    if "\0" in text:
        raise UsageError(f"invalid path: got {text!r}, with a zero byte. Check the name.")
    longest = max((len(os.fsencode(part)) for part in parsed.parts), default=0)
    if longest > _LONGEST_NAME or len(os.fsencode(parsed)) > _LONGEST_PATH:
        raise UsageError(
            f"invalid path: got {text!r}, with a name of {longest} bytes; expected at most {_LONGEST_NAME}, and "
            f"{_LONGEST_PATH} in all. Choose a shorter name."
        )
    return parsed


def parse_duration(duration: str | float, kind: str = "duration") -> float:
    """Read a duration above 0, in seconds: a text such as ``"50ms"``, or a number of seconds; errors call it `kind`.

    >>> parse_duration("50ms"), parse_duration("1.5h"), parse_duration(0.05)
    (0.05, 5400.0, 0.05)

    UsageError: it is no number with a unit, or not finite and above 0.
    """
    seconds = math.nan
    if isinstance(duration, str) and (match := _DURATION.fullmatch(duration.strip()[:_LONGEST_DURATION])):
        with suppress(ValueError):
            seconds = float(match[1]) * _UNITS[match[2]]
    elif isinstance(duration, (int, float)) and not isinstance(duration, bool) and duration < LONGEST_S:
        seconds = float(duration)
    if not 0 < seconds < LONGEST_S:
        raise UsageError(
            f"invalid {kind}: got {duration!r}; expected a time above 0 such as '50ms', '2s', '20min' or "
            "'1.5h', or a number of seconds."
        )
    return seconds


def format_value(value: object) -> str:
    """Write a label: a number without trailing zeros, a moment without an empty time, all else as its text."""
    return f"{value:.12g}" if isinstance(value, float) else str(value).removesuffix(" 00:00:00")


def format_count(count: int, singular: str, plural: str = "") -> str:
    """Format a number of things: ``1 trial is``, ``2 trials are``; by default the plural has an s."""
    return f"{count:,} {singular if count == 1 else plural or f'{singular}s'}"


def format_share(share: float, form: str = ".3g") -> str:
    """Format a share in percent: ``12.5 %``; one that is not finite as ``–``."""
    return f"{100 * share:{form}} %" if math.isfinite(share) else "–"


def format_seconds(seconds: float) -> str:
    """Format a short time with three digits: ``50 ms``, ``2 s``."""
    unit, size = choose_time_unit(seconds)
    return f"{seconds / size:.3g} {unit}"


def choose_time_unit(seconds: float) -> tuple[str, float]:
    """Choose the largest unit of which a short time is at least one, and its seconds."""
    return next(((unit, size) for unit, size in _SHORT_UNITS if seconds >= size), _SHORT_UNITS[-1])


def format_duration(seconds: float) -> str:
    """Format a time in its two largest units.

    >>> format_duration(80.2)
    '1 min 20 s'
    """
    total = round(seconds)
    if total < 60:
        return f"{total} s"
    if total < 3600:
        return f"{total // 60} min {total % 60} s"
    return f"{total // 3600} h {total % 3600 // 60} min"


def format_age(seconds: float) -> str:
    """Format the time since a moment in its largest unit.

    >>> format_age(200)
    '3 min ago'
    """
    total = max(round(seconds), 0)
    sizes = ((172_800, 86_400, "d"), (3600, 3600, "h"), (60, 60, "min"))
    size, unit = next(((size, unit) for least, size, unit in sizes if total >= least), (1, "s"))
    return f"{total // size} {unit} ago"


def format_size(size: float) -> str:
    """Format a number of bytes with three digits.

    >>> format_size(906_512_004)
    '907 MB'
    """
    number, letters = size, iter(("B", "kB", "MB", "GB", "TB"))
    unit = next(letters)
    while number >= 999.5 and (larger := next(letters, None)):
        number, unit = number / 1000, larger
    return f"{number:.3g} {unit}"


def format_network(name: str, factors: Mapping[str, object]) -> str:
    """Write the name of a network with the values of its factors: ``conv width=64``."""
    return name + "".join(f" {factor}={format_value(value)}" for factor, value in factors.items())


def shorten(text: str, most: int) -> str:
    """Shorten a text to so many characters, the last of which says that there are more.

    >>> shorten("resnet18", 5)
    'resn…'
    """
    return text if len(text) <= most else f"{text[: most - 1]}…"


def join_names(names: Iterable[str], separator: str = ", ", *, most: int = 6) -> str:
    """Join the first names, and count the others: ``a, b, and 4 more``."""
    listed = list(names)
    more = f"{separator}and {len(listed) - most} more" if len(listed) > most else ""
    return separator.join(listed[:most]) + more


def parse_json(text: str | bytes) -> Any:
    """Read JSON; UsageError, with the reason, if it is invalid, nests too deeply, or has a number that is too long."""
    try:
        content = json.loads(text)
    except RecursionError:
        raise UsageError("it nests too deeply") from None
    except ValueError as error:
        is_clear = isinstance(error, (json.JSONDecodeError, UnicodeDecodeError))
        reason = str(error) if is_clear else "a number has too many digits"
        raise UsageError(reason) from None
    level = [content]
    for _ in range(MAX_DEPTH):
        nested = [each.values() if isinstance(each, dict) else each for each in level if isinstance(each, (dict, list))]
        level = [item for items in nested for item in items]
    if level:  # it is read, but no text can be made of it
        raise UsageError("it nests too deeply")
    return content


def parse_toml(file: Path, content: bytes) -> dict[str, Any]:
    """Read the TOML of a file; UsageError, with the file and the line, if it is invalid."""
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    try:
        return tomllib.loads(content.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise UsageError(f"{file} is not UTF-8 (byte {error.start}): save it as UTF-8.") from None
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{file} is not valid TOML: {error}. Correct it there.") from None


def clean_line(text: str) -> str:
    """Return foreign text as one short line without control characters and escape sequences."""
    if len(text) <= MAX_LINE and text.isprintable():
        return text
    if not text[:MAX_LINE].isprintable():
        text = strip_controls(text[: 2 * MAX_LINE])
        text = "".join(character if character.isprintable() else " " for character in text)
    return text[:MAX_LINE]


def clean_text(text: str) -> str:
    """Return the end of foreign text without control characters and escape sequences, except line breaks and tabs."""
    text = text[-MAX_TEXT:]
    if text.translate(_LAYOUT).isprintable():
        return text
    text = strip_controls(text.replace("\r\n", "\n").replace("\r", "\n"))
    return "".join(character if character.isprintable() or character in "\n\t" else " " for character in text)


def fit_output(text: str) -> str:
    """Replace the signs that the encoding of the standard output lacks, such as the lines of a table by dashes."""
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    return text.encode(encoding, PLAIN).decode(encoding)


def _replace_signs(error: UnicodeError) -> tuple[str, int]:
    """Replace the lines of tables and the usual signs by ASCII, and other signs by their number."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(map(_replace_sign, error.object[error.start : error.end])), error.end


def _replace_sign(sign: str) -> str:
    if sign in _SIGNS:
        return _SIGNS[sign]
    name = unicodedata.name(sign, "")
    if not name.startswith("BOX DRAWINGS"):
        return sign.encode("ascii", "backslashreplace").decode()
    if " AND " in name:  # a corner, or a crossing
        return "+"
    return "|" if "VERTICAL" in name else "-"


codecs.register_error(PLAIN, _replace_signs)
