"""The verb that is about caches, carried out: what came of it for programs, and as rows for people."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from ngbkit.cluster.caches import cleaning, contents, transfer
from ngbkit.cluster.caches.contents import Kept, Place
from ngbkit.commands import cache_arguments
from ngbkit.commands.cache_arguments import write_size
from ngbkit.commands.listing import Answer
from ngbkit.errors import UsageError
from ngbkit.runs.time_left import duration

_SHOWN_KEY = 12
_DAY_S = 86400.0
_PLURAL = {"preparation": "preparations", "result of tuning": "results of tuning"}


def see_to_caches(asked: argparse.Namespace) -> Answer:
    """Carry out the verb that is about caches, with the words of `ngbkit.cluster.caches.CACHE`.

    Raises
    ------
    UsageError
        Something that was asked for is not valid; or a device of another machine.
    DeviceError
        A plan runs on the device.
    """
    cache_arguments.check(asked)
    return _ACTIONS[asked.action](contents.locate(asked.device), asked)


def _list(place: Place, asked: argparse.Namespace) -> Answer:
    kept = _named(contents.look(place), asked.names)
    empty = f"Device {place.device} keeps nothing in {place.state_dir}."
    return Answer(rows=_write(kept), empty=empty, json=_to_json(place, kept))


def _clean(place: Place, asked: argparse.Namespace) -> Answer:
    keep = None if asked.keep is None else cache_arguments.read_size(asked.keep)
    age = None if asked.older_than is None else cache_arguments.read_age(asked.older_than)
    if asked.dry_run:
        going = _going(place, asked, keep, age)
    else:
        with place.alone("clean"):
            going = _going(place, asked, keep, age)
            cleaning.remove(place, going)
    done = "would be removed" if asked.dry_run else "removed"
    empty = "Nothing would be removed." if asked.dry_run else "Nothing was removed: nothing was too much or too old."
    return Answer(
        rows=[{**row, "done": done} for row in _write(going)],
        empty=empty,
        json={**_to_json(place, going), "removed": not asked.dry_run},
    )


def _going(place: Place, asked: argparse.Namespace, keep: int | None, age: float | None) -> list[Kept]:
    named = _named(contents.look(place), asked.names)
    kept = [one for one in named if asked.tuning or one.kind != "tuning"]
    if asked.names and not kept:
        raise UsageError(f"{' '.join(asked.names)} names results of tuning alone, which took long: add --tuning.")
    if keep is None and age is None:
        return kept
    return cleaning.choose(kept, keep_bytes=keep, older_than_s=age)


def _export(place: Place, asked: argparse.Namespace) -> Answer:
    path, names = Path(asked.names[0]).expanduser(), asked.names[1:]
    if path.is_dir():
        raise UsageError(f"{path} is a folder; name a file in it, such as {path / 'tuned.tar.gz'}.")
    if path.exists() and not asked.overwrite:
        raise UsageError(f"{path} exists. Choose another name, or replace it with --overwrite.")
    with place.alone("export"):
        kept = [one for one in contents.look(place) if one.kind == "tuning" and contents.is_whole(one.about)]
        if not kept:
            raise UsageError(f"device {place.device} keeps no whole result of tuning: there is nothing to export.")
        kept = _named(kept, names)
        transfer.export(kept, place, path)
    size = path.stat().st_size
    rows = [*_write(kept), {"kind": "archive", "what": str(path), "size": write_size(size)}]
    return Answer(rows=rows, empty="", json={**_to_json(place, kept), "file": str(path), "file_bytes": size})


def _import(place: Place, asked: argparse.Namespace) -> Answer:
    path, names = Path(asked.names[0]).expanduser(), asked.names[1:]
    with place.alone("import"):
        came = transfer.take_in(
            path,
            place,
            names,
            with_libraries=asked.with_libraries,
            anyway=asked.anyway,
            dry_run=asked.dry_run,
        )
    rows = [
        {"key": one.key[:_SHOWN_KEY], "what": _what_tuned(one.compiler, one.meta), "done": one.done} for one in came
    ]
    told = [{"compiler": one.compiler, "key": one.key, "about": one.meta, "done": one.done} for one in came]
    return Answer(
        rows=rows,
        empty=f"{path} holds no result of tuning.",
        json={"device": place.device, "came": told, "imported": not asked.dry_run},
    )


_ACTIONS: Mapping[str, Callable[[Place, argparse.Namespace], Answer]] = {
    "list": _list,
    "clean": _clean,
    "export": _export,
    "import": _import,
}


def _named(kept: Sequence[Kept], names: Sequence[str]) -> list[Kept]:
    """Those that answer to one of the names, or all without any; each name must have one."""
    for name in names:
        if not any(one.answers_to(name) for one in kept):
            raise UsageError(
                f"nothing that is kept answers to {name!r}: give how its key begins, its compiler, or a part of its "
                "network's name; `ngbkit cache` lists them all."
            )
    return [one for one in kept if not names or any(one.answers_to(name) for name in names)]


def _to_json(place: Place, kept: Sequence[Kept]) -> dict[str, Any]:
    kinds = {kind: [one.bytes for one in kept if one.kind == kind] for kind in ("preparation", "tuning")}
    return {
        "device": place.device,
        "state_dir": str(place.state_dir),
        "kept": [one.to_json() for one in kept],
        "totals": {kind: {"count": len(sizes), "bytes": sum(sizes)} for kind, sizes in kinds.items()},
    }


def _write(kept: Sequence[Kept]) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = [
        {
            "kind": one.kind,
            "key": one.key[:_SHOWN_KEY],
            "what": _what(one),
            "holds": _holds(one),
            "size": write_size(one.bytes),
            "used": _ago(time.time() - one.used),
        }
        for one in kept
    ]
    if not rows:
        return []
    tuned = sum(one.kind == "tuning" for one in kept)
    counts = {"preparation": len(kept) - tuned, "result of tuning": tuned}
    told = [f"{count} {name if count == 1 else _PLURAL[name]}" for name, count in counts.items() if count]
    return [*rows, {"kind": "all", "what": told, "size": write_size(sum(one.bytes for one in kept))}]


def _what(one: Kept) -> str:
    if one.kind == "tuning":
        return _what_tuned(one.compiler, one.about)
    factors = "".join(f" {name}={value}" for name, value in one.about["factors"].items())
    count = one.about["parameters"]
    return f"{one.about['network']}{factors}" or ("" if count is None else f"{count:,} parameters")


def _what_tuned(compiler: str, meta: Mapping[str, Any]) -> str:
    if not meta:
        return f"{compiler}: its {contents.META} does not read"
    network = str(meta.get("network", ""))
    is_hash = len(network) >= 2 * _SHOWN_KEY and all(sign in "0123456789abcdef" for sign in network)
    return f"{compiler}: {network[:_SHOWN_KEY] if is_hash else network} batch {meta.get('batch_size')}"


def _holds(one: Kept) -> str:
    if one.kind == "tuning" and not one.about:
        return ""
    if one.kind == "tuning":
        seconds = one.about.get("seconds")
        took = f" in {duration(seconds)}" if isinstance(seconds, (int, float)) and seconds < 1e9 else ""
        return f"{one.about.get('candidates', 0)} candidates{took}, {_target(one.about.get('target', ''))}"
    onnx, compiled = one.about["onnx"], one.about["compiled"]
    held = [f"{onnx} ONNX"] if onnx else []
    held += ["reference"] if one.about["reference"] else []
    return ", ".join([*held, f"{compiled} compiled"] if compiled else held)


def _target(target: Any) -> str:
    """What it was compiled for, in words, also where that is JSON: ``"llvm num-cores=2 mcpu=znver4"``."""
    with suppress(ValueError, TypeError, RecursionError):
        target = json.loads(target)
    if not isinstance(target, dict):
        return str(target)
    told = {name: value for name, value in target.items() if value and isinstance(value, (str, int)) and name != "kind"}
    return " ".join([str(target.get("kind", "")), *(f"{name}={value}" for name, value in told.items())])


def _ago(seconds: float) -> str:
    if seconds >= 2 * _DAY_S:
        return f"{seconds / _DAY_S:.0f} d ago"
    return f"{duration(max(seconds, 0.0))} ago"
