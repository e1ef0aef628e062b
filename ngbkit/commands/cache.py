"""``ngbkit cache``: list what a device keeps between runs, and clean it."""

from __future__ import annotations

import argparse
import re
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ngbkit.commands.answer import Answer
from ngbkit.commands.arguments import take_label
from ngbkit.commands.command import Call, Command
from ngbkit.errors import UsageError
from ngbkit.sweep.argument import argument
from ngbkit.user_text import clean_line, format_age, format_size

if TYPE_CHECKING:
    from ngbkit.cluster.caches import CacheItem, DeviceCaches

_KEY_LENGTH = 12
_DAY_S = 86400.0
_NAMES = {
    "preparation": ("preparation", "preparations"),
    "environment": ("environment", "environments"),
    "artifact": ("artifact", "artifacts"),
    "tuning": ("result of tuning", "results of tuning"),
}
_NEEDED = "runs, or used within a day"
_SIZE = re.compile(r"([0-9]{1,15}(?:\.[0-9]+)?) *(?:([KMGT])(i?))?B?", re.IGNORECASE)
_PREFIXES = "kmgt"


def parse_size(text: str) -> int:
    """The bytes in ``5GB``, ``500 MiB`` or ``0``."""
    match = _SIZE.fullmatch(text.strip())
    if not match:
        raise UsageError(f"invalid size {text!r}; use a form such as 5GB, 500MB or 2GiB.")
    power = _PREFIXES.index(match[2].lower()) + 1 if match[2] else 0
    size: float = float(match[1]) * (1024 if match[3] else 1000) ** power
    return round(size)


def answer_cache(call: Call) -> Answer:
    """Carry out the action that a call names."""
    from ngbkit.cluster.caches import locate

    args, is_cleaning = call.args, call.args.action == "clean"
    if args.keep and not is_cleaning:
        raise UsageError(f"invalid option --keep: got it with {args.action}; expected clean. Leave it out.")
    if is_cleaning and not (args.names or args.keep):
        raise UsageError("clean needs a limit: --keep 5GB, or names; --keep 0 removes all but results of tuning.")
    caches = locate(take_label("devices", args.devices))
    return _clean(caches, args) if is_cleaning else _list(caches, args)


COMMAND = Command(
    name="cache",
    help="List what a device keeps between runs, or clean it.",
    arguments=(
        argument(
            "action list|clean", "list: what the device keeps (the default); clean: remove the least recently used"
        ),
        argument(
            "names NAME",
            "a selection: the beginning of a key, a compiler, or a part of a network's name (default: all); clean "
            "removes results of tuning, which took long, only by their compiler or their key",
            nargs="*",
            completes="kept",
        ),
        argument(
            "-d, --devices DEVICE",
            "the device of this machine whose caches these are (default: cpu)",
            default="cpu",
            completes="device",
        ),
        argument("--keep SIZE", "clean: until at most this size is left, such as 5GB"),
    ),
    run=answer_cache,
)


def _list(caches: DeviceCaches, args: argparse.Namespace) -> Answer:
    from ngbkit.cluster.caches import list_items
    from ngbkit.runs.deletion import list_artifacts

    items = _select(list_items(caches, list_artifacts()), args.names)
    empty = f"Device {caches.device} keeps nothing in {caches.state_dir}."
    return Answer.of_rows(_to_rows(items), empty, json=_to_json(caches, items))


def _clean(caches: DeviceCaches, args: argparse.Namespace) -> Answer:
    from ngbkit.cluster.caches import remove

    with caches.lock("clean"):
        evicted = remove(caches, _choose_evictions(caches, args))
    return Answer.of_rows(
        [{**row, "done": "removed"} for row in _to_rows(evicted)],
        "Nothing was removed: no entry is over the limit.",
        json=_to_json(caches, evicted),
    )


def _choose_evictions(caches: DeviceCaches, args: argparse.Namespace) -> list[CacheItem]:
    from ngbkit.cluster.caches import choose_evictions, list_items
    from ngbkit.runs.deletion import list_artifacts

    keep_bytes = None if args.keep is None else parse_size(args.keep)
    selected = _select(list_items(caches, list_artifacts()), args.names)
    evictable = [item for item in selected if not _is_needed(item, args)]
    if args.names and not evictable:
        kinds = {item.kind for item in selected}
        needed = ["results of tuning, which took long: name their compiler or a key"] if "tuning" in kinds else []
        needed += [f"artifacts of {_NEEDED}. `ngbkit runs --delete ID` deletes a run's"] if "artifact" in kinds else []
        raise UsageError(f"{' '.join(args.names)} names only {', or '.join(needed)}.")
    return evictable if keep_bytes is None else choose_evictions(evictable, keep_bytes)


def _is_needed(item: CacheItem, args: argparse.Namespace) -> bool:
    """Return whether an item took long, or a run, or a network in a notebook that has not run yet, has it."""
    if item.kind == "artifact":
        return bool(item.metadata["runs"]) or _is_recent(item)
    # A name of a network selects what is made again in minutes; the search of a compiler took hours.
    names = list(filter(None, args.names))
    return item.kind == "tuning" and not any(name == item.compiler or item.key.startswith(name) for name in names)


def _is_recent(item: CacheItem) -> bool:
    return time.time() - item.used_at < _DAY_S


def _select(items: Sequence[CacheItem], names: Sequence[str]) -> list[CacheItem]:
    """The items that match one of the names, or all without any; each name must match one."""
    for name in names:
        if not any(item.matches(name) for item in items):
            raise UsageError(
                f"invalid name: got {name!r}, which matches nothing; expected the beginning of a key, a compiler, or a "
                "part of a network's name. `ngbkit cache` lists them."
            )
    return [item for item in items if not names or any(item.matches(name) for name in names)]


def _to_json(caches: DeviceCaches, items: Sequence[CacheItem]) -> dict[str, Any]:
    kinds = {kind: [item.bytes for item in items if item.kind == kind] for kind in _NAMES}
    return {
        "device": caches.device,
        "state_dir": str(caches.state_dir),
        "kept": [item.to_json() for item in items],
        "totals": {kind: {"count": len(sizes), "bytes": sum(sizes)} for kind, sizes in kinds.items()},
    }


def _to_rows(items: Sequence[CacheItem]) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = [
        {
            "kind": item.kind,
            "key": item.key[:_KEY_LENGTH],
            "what": _describe(item),
            "note": _describe_use(item),
            "size": format_size(item.bytes),
            "used": format_age(time.time() - item.used_at),
        }
        for item in items
    ]
    if not rows:
        return []
    counts = {names: sum(item.kind == kind for item in items) for kind, names in _NAMES.items()}
    totals = [f"{count} {names[count != 1]}" for names, count in counts.items() if count]
    return [*rows, {"kind": "all", "what": totals, "size": format_size(sum(item.bytes for item in items))}]


def _describe(item: CacheItem) -> str:
    if item.kind == "tuning":
        return _describe_result(item)
    if item.kind == "environment":
        return str(item.metadata["requirements"][0]).replace("==", " ")
    if item.kind == "artifact":
        return item.metadata["network"] or ("" if item.files else "laid out by a former version")
    factors = "".join(f" {name}={value}" for name, value in item.metadata["factors"].items())
    count = item.metadata["parameters"]
    return f"{item.metadata['network']}{factors}" or ("unfinished" if count is None else f"{count:,} parameters")


def _describe_result(item: CacheItem) -> str:
    from ngbkit.cluster.caches import META

    if not item.metadata:
        return f"{item.compiler}: invalid {META}"
    network = str(item.metadata.get("network", ""))
    is_hash = len(network) >= 2 * _KEY_LENGTH and all(sign in "0123456789abcdef" for sign in network)
    return f"{item.compiler}: {network[:_KEY_LENGTH] if is_hash else network} batch {item.metadata.get('batch_size')}"


def _describe_use(item: CacheItem) -> str:
    """Describe the runs that have an artifact, or why nothing uses a result of tuning here."""
    from ngbkit.cluster.caches import find_differences

    if item.kind == "artifact":
        runs = item.metadata["runs"]
        number = f"of {len(runs) or 'no'} {'runs' if len(runs) > 1 else 'run'}"
        return f"{number}, kept for a day" if _is_recent(item) and not runs else number
    is_described = item.kind == "tuning" and item.metadata
    unused = find_differences(item) if is_described else []
    return clean_line("; ".join(f"unused here: {text}" for text in unused))
