"""Validation of all that a device sends: its replies, its events, its records.

A device is trusted with its measurements and with nothing else. An invalid message is an error that names the device,
and nothing of it is used.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Any

from ngbkit import validation
from ngbkit.device.serving.load import LoadTest
from ngbkit.device.spec import FORMAT
from ngbkit.errors import DeviceError, JournalError
from ngbkit.sweep import notes, records
from ngbkit.sweep.records import Record
from ngbkit.user_text import clean_line
from ngbkit.validation import Line

Event = dict[str, Any]

MAX_MESSAGE_BYTES = 64 << 20
"""The largest valid message has a batch of a journal's records: see `ngbkit.device.plan.collect`."""
_MAX_NOTE_BYTES = 4 << 20
_MAX_INTEGER = 1 << 53


class ReplyError(DeviceError):
    """A device sent a message that no ngbkit sends."""


def parse(device: str, text: str) -> dict[str, Any]:
    """Parse a message, which must be a JSON object of limited size."""
    if len(text) > MAX_MESSAGE_BYTES:
        raise ReplyError(
            f"invalid message from device {device}: got more than {MAX_MESSAGE_BYTES:,} characters; expected fewer. "
            "Measure with fewer --repeats, or mend the device."
        )
    try:
        message = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ReplyError(
            f"invalid message from device {device}: got {clean_line(text[:80])!r}, which is not JSON ({error})."
        ) from None
    if not isinstance(message, dict):
        raise ReplyError(
            f"invalid message from device {device}: got a {type(message).__name__}; expected a JSON object."
        )
    return message


def parse_answer(device: str, text: str) -> dict[str, Any]:
    """Parse the answer to a short call; DeviceError if it is the error of the device."""
    answer = parse(device, text)
    if answer.get("state") == "error":
        raise DeviceError(f"device {device}: {clean_line(str(answer.get('error')))}")
    return answer


def extract(device: str, reply: Mapping[str, Any], types: Mapping[str, type]) -> dict[str, Any]:
    """Return these fields of a reply, each checked for its type, and no others."""
    for name, expected in types.items():
        value = reply.get(name)
        is_number = isinstance(value, int) and not isinstance(value, bool) and abs(value) <= _MAX_INTEGER
        if not isinstance(value, expected) or (expected is int and not is_number):
            raise ReplyError(
                f"invalid {name!r} in a reply from device {device}: got {clean_line(repr(value)[:80])}; expected "
                f"{expected.__name__}. `ngbkit deploy {device}` installs the same ngbkit there."
            )
    return {name: reply[name] for name in types}


def parse_event(device: str, text: str, trial_ids: Collection[str]) -> Event | None:
    """Check the fields of an event and label it with its device; None if unknown, ReplyError for a foreign trial."""
    event = parse(device, text)
    kind = event.get("kind")
    labels = {"kind": kind, "device": device}
    if kind == "record":
        return {**labels, "record": parse_record(device, event.get("record"), trial_ids)}
    if kind == "interim":
        listed = extract(device, event, {"records": list})["records"]
        return {**labels, "records": [parse_record(device, record, trial_ids) for record in listed]}
    if kind in ("facts", "environment"):
        return {**labels, **parse_note(device, kind, event.get("key"), event.get("value"))}
    if kind == "stage":
        text = clean_line(extract(device, event, {"text": str})["text"])
        return {**labels, "text": text, **_parse_step(event, trial_ids)}
    if kind == "round":
        fields = extract(device, event, {"text": str, "done": int, "total": int, "trial_ids": list})
        fields["trial_ids"] = list(
            dict.fromkeys(name for name in fields["trial_ids"] if isinstance(name, str) and name in trial_ids)
        )
        return {**labels, **_clamp_progress(fields)}
    if kind == "tuning":
        fields = extract(device, event, {"text": str, "done": int, "total": int, "trial_id": str})
        if fields["trial_id"] not in trial_ids:
            raise ReplyError(f"device {device} reports tuning for a trial that is not part of this run there.")
        times = {name: parse_number(event.get(name)) for name in ("best_s", "left_s")}
        return {**labels, **_clamp_progress(fields), **times}
    if kind == "served":
        return {**labels, "test": parse_test(device, event.get("test"))}
    if kind == "salvaged":
        fields = extract(device, event, {"records": int, "journal": str})
        return {**labels, "records": fields["records"], "journal": clean_line(fields["journal"])}
    return None


def _parse_step(event: Mapping[str, Any], trial_ids: Collection[str]) -> dict[str, str]:
    """Return the step that a stage begins, and its trial, if they are known; the time left is estimated from them."""
    step, trial_id = event.get("step"), event.get("trial_id")
    if step == "prepare":
        return {"step": step}
    is_known = isinstance(trial_id, str) and trial_id in trial_ids
    return {"step": step, "trial_id": trial_id} if step == "compile" and is_known else {}  # type: ignore[dict-item]


def parse_record(device: str, record: Any, trial_ids: Collection[str]) -> Record:
    """Parse the record of a trial of this run."""
    trial_id = record.get("trial_id") if isinstance(record, dict) else None
    if not isinstance(trial_id, str) or trial_id not in trial_ids:
        raise ReplyError(
            f"device {device} sent a record of a trial that is not part of this run there: "
            f"{clean_line(repr(trial_id)[:80])}."
        )
    try:
        return records.from_json(record)
    except JournalError as error:
        raise ReplyError(f"invalid record from device {device}: {error}") from None


def parse_note(device: str, kind: str, key: Any, value: Any) -> dict[str, Any]:
    """Check a device's ``environment``, or the ``facts`` of a workload."""
    try:
        valid = notes.parse(kind, key, value)
    except JournalError as error:
        raise ReplyError(f"device {device} sent an {error}") from None
    if (kind == "environment" and key != device) or len(key) + len(json.dumps(value)) > _MAX_NOTE_BYTES:
        raise ReplyError(f"invalid or far too long {kind} from device {device}, for {clean_line(repr(key)[:80])}.")
    return {"key": key, "value": valid}


def parse_contents(device: str, value: Any) -> dict[str, tuple[str, str]]:
    """Check the contents of a device's networks, each with a reason."""
    try:
        contents = validation.parse(Mapping[str, list[Line]], value)
        return {key: (content, reason) for key, (content, reason) in contents.items()}
    except (validation.SchemaError, ValueError) as error:
        raise ReplyError(f"invalid contents from device {device}: {clean_line(str(error))}") from None


def parse_test(device: str, value: Any) -> LoadTest:
    """Check a test of LoadGen."""
    try:
        test: LoadTest = validation.parse(LoadTest, value)
    except validation.SchemaError as error:
        raise ReplyError(f"invalid load test from device {device}: {clean_line(str(error))}") from None
    return test


def check_formats(device: str, hello: Mapping[str, Any], remedy: str) -> None:
    """Refuse a device whose ngbkit reads other specs or writes other records."""
    for name, expected in (("format", FORMAT), ("record_format", records.FORMAT)):
        if hello[name] != expected:
            raise DeviceError(
                f"device {device} has {name.replace('_', ' ')} {hello[name]}; expected {expected}. {remedy}"
            )


def parse_number(value: Any) -> float | None:
    """Return a finite number of at least 0; None for any other value."""
    try:
        number: float = validation.parse(validation.Seconds, value)
    except validation.SchemaError:
        return None
    return number


def _clamp_progress(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields with ``done`` between 0 and ``total``, and a clean ``text``."""
    total = max(1, fields["total"])
    done = min(max(0, fields["done"]), total)
    return {**fields, "text": clean_line(fields["text"]), "done": done, "total": total}
