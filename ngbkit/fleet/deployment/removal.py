"""Removes from a device all that deploys and runs have left there, and nothing else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import PurePosixPath
from typing import Any

from ngbkit import options
from ngbkit.cluster import replies
from ngbkit.cluster.devices import Device
from ngbkit.errors import DeviceError, NgbkitError, UsageError
from ngbkit.fleet.deployment.onsite.folder import MARK
from ngbkit.fleet.deployment.remote import request, resolve
from ngbkit.sweep.journal import Journal
from ngbkit.user_text import clean_line


@dataclass(frozen=True, slots=True, kw_only=True)
class Removal:
    """The removed entries of a device's state folder, and the remaining ones; without any the folder is removed too."""

    device: str
    state_dir: str
    removed: Sequence[str]
    remaining: Sequence[str]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def to_text(self) -> str:
        """Render it as one line."""
        removed = f"removed {', '.join(self.removed)}" if self.removed else "found nothing of ngbkit's"
        remaining = f"; kept {', '.join(self.remaining)}, which is not this device's" if self.remaining else ""
        return clean_line(f"{self.device}: {removed} (in {self.state_dir}){remaining}.")


def remove(device: Device) -> Removal:
    """Remove all that deploys and runs have left on a device, unless it has records that this client lacks.

    A folder that a client keeps its runs in, such as that of this machine's own devices, loses the environment alone.
    """
    device = resolve(device)
    contents = _parse_contents(device, request(device, "hold"))
    state_dir = contents["state_dir"]
    if contents["foreign"]:
        names = ", ".join(map(str, contents["foreign"][:5]))
        raise UsageError(
            clean_line(f"{state_dir} on device {device.label} has files ({names}), but not the file {MARK} by ")
            + "which ngbkit marks its folders, so nothing was removed. If all of it is ngbkit's, remove the folder."
        )
    is_own = device.host is None and state_dir == str(options.get_state_dir())
    only_env = is_own or contents["shared"]
    _refuse_in_use(device, contents, only_env)
    if not only_env:
        _refuse_loss(device, contents)
    answer = request(device, "clear", fields={"only_env": only_env})
    lists = replies.extract(device.label, answer, {"removed": list, "left": list})
    removed, remaining = ([str(name) for name in lists[key]] for key in ("removed", "left"))
    return Removal(device=device.label, state_dir=state_dir, removed=removed, remaining=remaining)


def _parse_contents(device: Device, answer: Mapping[str, Any]) -> dict[str, Any]:
    types = {"state_dir": str, "engines": list, "records": dict, "measuring": list, "unread": list, "foreign": list}
    contents = replies.extract(device.label, answer, {**types, "shared": bool})
    for engine in contents["engines"]:
        replies.extract(device.label, engine, {"label": str, "folder": str, "in_env": bool})
    for trial_ids in contents["records"].values():
        replies.extract(device.label, {"records": trial_ids}, {"records": list})
    return contents


def _refuse_in_use(device: Device, contents: Mapping[str, Any], only_env: bool) -> None:
    """Refuse if an engine lives there, or a plan of an engine that ngbkit has not started runs."""
    engines = [engine for engine in contents["engines"] if engine["in_env"] or not only_env]
    local = [engine["label"] for engine in engines if engine.get("host") is None]
    remote = [engine for engine in engines if engine.get("host") is not None]
    if local:
        raise DeviceError(
            f"an engine lives on device {device.label} ({clean_line(local[0])}): wait for its run, or end the "
            "notebook or the shell that started it, and try again."
        )
    if contents["measuring"] and not only_env:
        run_id = clean_line(str(contents["measuring"][0]))
        raise DeviceError(f"device {device.label} measures run {run_id} now: wait for it, or stop it, and try again.")
    if remote:
        host, folder = (clean_line(str(remote[0][name])) for name in ("host", "folder"))
        raise DeviceError(
            f"an engine of device {device.label} was started on {host} and may still live, which "
            f"{device.shell.machine} cannot check: once its job has ended, delete {folder} there, and try again."
        )


def _refuse_loss(device: Device, contents: Mapping[str, Any]) -> None:
    """Refuse if the device has records that this client lacks."""
    lines = [f"cannot read the journal {path}" for path in contents["unread"]]
    for run_id, trial_ids in sorted(contents["records"].items()):
        recorded = _load_trial_ids(run_id)
        missing = len(set(map(str, trial_ids)) - (recorded or set()))
        if missing:
            remedy = "of a run unknown here, whose own client collects them"
            if recorded is not None:
                remedy = f"`ngbkit runs --resume {run_id}` collects them"
            lines.append(f"{missing} of the {len(trial_ids)} records of run {run_id}: {remedy}")
    if lines:
        text = "".join(f"\n  {clean_line(line)}" for line in lines)
        journals = clean_line(str(PurePosixPath(contents["state_dir"]) / options.LAYOUT.devices))
        raise UsageError(
            f"only device {device.label} has:{text}\nTo give all of it up, delete the folder {journals} on "
            f"{device.shell.machine}, and try again."
        )


def _load_trial_ids(run_id: str) -> set[str] | None:
    """Load the ids of a run's recorded trials from this client's journal; None for an unknown run."""
    path = options.get_state_dir() / options.LAYOUT.runs / PurePosixPath(run_id).name / "journal.sqlite"
    with suppress(NgbkitError), Journal(path, writable=False) as journal:
        return set(journal.statuses())
    return None
