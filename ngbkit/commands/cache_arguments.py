"""The words of `ngbkit cache`: sizes and ages as people write them, and which option goes with which action."""

from __future__ import annotations

import argparse
import re

from ngbkit.commands.arguments import Argument, argument
from ngbkit.errors import UsageError

ACTIONS = ("list", "clean", "export", "import")
_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?) *(?:([KMGT])(i?))?B?", re.IGNORECASE)
_AGE = re.compile(r"([0-9]+(?:\.[0-9]+)?) *([smhdw])")
_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 7 * 86400.0}
_PREFIXES = "kmgt"


#: The words of the verb.
CACHE: tuple[Argument, ...] = (
    argument(
        "action",
        nargs="?",
        choices=ACTIONS,
        default=ACTIONS[0],
        metavar="|".join(ACTIONS),
        help="list what the device keeps (the default); clean: remove what was used longest ago; export, import: carry "
        "results of tuning to another device by a FILE, which is a tar archive",
    ),
    argument(
        "names",
        nargs="*",
        metavar="NAME",
        completes="kept",
        help="export, import: first the FILE. Then which of it: how a key begins, a compiler, or a part of a network's "
        "name (default: all)",
    ),
    argument(
        "-d",
        "--device",
        metavar="DEVICE",
        default="cpu",
        completes="device",
        help="whose caches, of a device of this machine (default: cpu)",
    ),
    argument("--keep", metavar="SIZE", help="clean: until at most so much is left, such as 5GB"),
    argument("--older-than", metavar="AGE", help="clean: what was not used for so long, such as 30d, 12h or 2w"),
    argument("--tuning", action="store_true", help="clean: results of tuning too, which took long"),
    argument("--dry-run", action="store_true", help="clean, import: only say what would be done"),
    argument(
        "--with-libraries",
        action="store_true",
        help="import: also compiled libraries. They are programs, which run here when the network is measured next: "
        "take them only from whom you trust",
    ),
    argument(
        "--anyway", action="store_true", help="import: also what was tuned on another chip, or with other versions"
    ),
    argument("--overwrite", action="store_true", help="export: replace the file if it exists"),
)
_GOES_WITH = {
    "keep": ("clean",),
    "older_than": ("clean",),
    "tuning": ("clean",),
    "dry_run": ("clean", "import"),
    "with_libraries": ("import",),
    "anyway": ("import",),
    "overwrite": ("export",),
}


def check(asked: argparse.Namespace) -> None:
    """Refuse what does not go together.

    Raises
    ------
    UsageError
        An option of another action, or an action without what it needs.
    """
    for name, actions in _GOES_WITH.items():
        if getattr(asked, name) and asked.action not in actions:
            raise UsageError(f"--{name.replace('_', '-')} goes with {' and '.join(actions)}, not with {asked.action}.")
    if asked.action in ("export", "import") and not asked.names:
        raise UsageError(f"{asked.action} needs a file: `ngbkit cache {asked.action} tuned.tar.gz`.")
    if asked.action == "clean" and not (asked.names or asked.keep or asked.older_than):
        raise UsageError("clean needs to know what may go: --keep 5GB, --older-than 30d, or names; --keep 0 is all.")


def read_size(text: str) -> int:
    """The bytes that ``5GB``, ``500 MiB`` or ``0`` stands for.

    Raises
    ------
    UsageError
        It reads as none of these.
    """
    found = _SIZE.fullmatch(text.strip())
    if not found:
        raise UsageError(f"--keep {text!r} does not read; write a size as 5GB, 500MB or 2GiB.")
    power = _PREFIXES.index(found[2].lower()) + 1 if found[2] else 0
    bytes_: float = float(found[1]) * (1024 if found[3] else 1000) ** power
    return round(bytes_)


def read_age(text: str) -> float:
    """The seconds that ``30d``, ``12h`` or ``2w`` stands for.

    Raises
    ------
    UsageError
        It reads as none of these.
    """
    found = _AGE.fullmatch(text.strip())
    if not found:
        raise UsageError(f"--older-than {text!r} does not read; write an age as 30d, 12h or 2w.")
    return float(found[1]) * _SECONDS[found[2]]


def write_size(size: int) -> str:
    """A number of bytes as people read it.

    >>> write_size(906_512_004)
    '907 MB'
    """
    number, letters = float(size), iter(("B", "kB", "MB", "GB", "TB"))
    unit = next(letters)
    while number >= 999.5 and (larger := next(letters, None)):
        number, unit = number / 1000, larger
    return f"{number:.3g} {unit}"
