"""What a device says, looked at before any of it is used: its replies, its events, its records.

A device is trusted with what it measures and with nothing else. What does not look like an answer to the question that
was asked is an error that names the device, and goes no further.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Mapping
from typing import Any

from ngbkit.errors import DeviceError
from ngbkit.sweep import records

Event = dict[str, Any]

_MOST_TEXT = 2000
_MOST_NOTE_BYTES = 4 << 20


class ReplyError(DeviceError):
    """A device said something that no device of ngbkit's would say."""


def read(device: str, text: str) -> dict[str, Any]:
    """A reply as the JSON object that it must be."""
    try:
        reply = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ReplyError(
            f"device {device} answered with something that is not JSON ({error}): {plain(text[:80])!r}."
        ) from None
    if not isinstance(reply, dict):
        raise ReplyError(f"device {device} answered with a {type(reply).__name__} in the place of a JSON object.")
    return reply


def take(device: str, reply: Mapping[str, Any], kinds: Mapping[str, type]) -> dict[str, Any]:
    """Those fields of a reply, each of the kind that it must be; what else it holds is left out."""
    for name, kind in kinds.items():
        value = reply.get(name)
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            raise ReplyError(
                f"device {device} answered without a proper {name!r}: a {kind.__name__} is needed, "
                f"{plain(repr(value)[:80])} came. Does it run the same ngbkit? `ngbkit deploy {device}` sees to that."
            )
    return {name: reply[name] for name in kinds}


def event(device: str, came: Mapping[str, Any], trial_ids: Collection[str]) -> Event | None:
    """An event with its fields looked at and under the device's own label; None for one of a kind that is not known.

    Raises
    ------
    ReplyError
        Its fields are not what they must be, or it is about a trial that this run does not have.
    """
    kind = came.get("kind")
    if kind == "record":
        return {"kind": kind, "device": device, "record": record(device, came.get("record"), trial_ids)}
    if kind in ("facts", "environment"):
        return {"device": device, "kind": kind, **note(device, kind, came.get("key"), came.get("value"))}
    if kind == "stage":
        return {"kind": kind, "device": device, "text": plain(str(came.get("text", "")))}
    if kind == "round":
        found = take(device, came, {"text": str, "done": int, "total": int, "trial_ids": list})
        ids = [one for one in found["trial_ids"] if isinstance(one, str) and one in trial_ids]
        total = max(1, found["total"])
        done = min(max(0, found["done"]), total)
        return {
            "kind": kind,
            "device": device,
            "text": plain(found["text"]),
            "done": done,
            "total": total,
            "trial_ids": ids,
        }
    if kind == "tuning":
        found = take(device, came, {"text": str, "done": int, "total": int, "trial_id": str})
        if found["trial_id"] not in trial_ids:
            raise ReplyError(f"device {device} tunes for a trial that this run does not have there.")
        times = {name: number(came.get(name)) for name in ("best_s", "left_s")}
        total = max(1, found["total"])
        done = min(max(0, found["done"]), total)
        return {
            **found,
            **times,
            "kind": kind,
            "device": device,
            "text": plain(found["text"]),
            "done": done,
            "total": total,
        }
    if kind == "salvaged":
        found = take(device, came, {"records": int, "journal": str})
        return {"kind": kind, "device": device, "records": found["records"], "journal": plain(found["journal"])}
    return None


def record(device: str, came: Any, trial_ids: Collection[str]) -> dict[str, Any]:
    """A record, as JSON, of a trial of this run."""
    trial_id = came.get("trial_id") if isinstance(came, dict) else None
    if not isinstance(trial_id, str) or trial_id not in trial_ids:
        raise ReplyError(
            f"device {device} sent a record of a trial that this run does not have there: {plain(repr(trial_id)[:80])}."
        )
    try:
        return records.to_json(records.from_json(came))
    except Exception as error:
        raise ReplyError(f"device {device} sent a record that does not read as one: {plain(repr(error))}.") from error


def note(device: str, kind: str, key: Any, value: Any) -> dict[str, Any]:
    """What a device says about itself (kind ``environment``) or about a workload (kind ``facts``)."""
    fits = isinstance(key, str) and isinstance(value, dict) and (kind != "environment" or key == device)
    if not fits or len(key) + len(json.dumps(value)) > _MOST_NOTE_BYTES:
        raise ReplyError(f"device {device} sent {kind} that are none, or far too long ({plain(repr(key)[:80])}).")
    return {"key": key, "value": value}


def number(value: Any) -> float | None:
    """A finite number of at least 0; None for whatever else came."""
    fits = isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < math.inf
    return float(value) if fits else None


def plain(text: str) -> str:
    """A device's words on one line, without what a terminal would obey, and not too long."""
    return "".join(sign if sign.isprintable() else " " for sign in text[:_MOST_TEXT])
