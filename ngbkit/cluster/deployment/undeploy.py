"""Take away what deploys and runs have left on a device: all of it, and nothing else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from ngbkit import options
from ngbkit.cluster import replies
from ngbkit.cluster.deployment.remote import carry, settled
from ngbkit.cluster.devices import Device
from ngbkit.errors import DeviceError, NgbkitError, UsageError
from ngbkit.sweep.journal import Journal


@dataclass(frozen=True, slots=True, kw_only=True)
class Undeployed:
    """What was taken away.

    Parameters
    ----------
    device
        Its label.
    state_dir
        The folder that ngbkit had there.
    removed
        What was removed from it.
    left
        What is still in it; with nothing left the folder is gone too.
    """

    device: str
    state_dir: str
    removed: Sequence[str]
    left: Sequence[str]

    def to_text(self) -> str:
        """All of it in a line, for people."""
        gone = f"removed {', '.join(self.removed)}" if self.removed else "nothing of ngbkit's was there"
        rest = f"; {', '.join(self.left)} stays, which is not this device's" if self.left else ""
        return replies.plain(f"{self.device}: {gone} (in {self.state_dir}){rest}.")


def undeploy(device: Device, *, discard: bool = False) -> Undeployed:
    """Take away all that deploys and runs have left on a device.

    A folder that a client keeps its runs in, as that of this machine's own devices, loses the environment alone.

    Parameters
    ----------
    device
        The device, as the devices file has it.
    discard
        Also where it holds records that are not here.

    Raises
    ------
    UsageError
        It holds records that are not here; the message says how to get them. Or what is there is not ngbkit's.
    DeviceError
        It cannot be reached, or an engine lives there.
    """
    device = settled(device)
    holds = _read_holds(device, carry(device, "hold"))
    where = holds["state_dir"]
    if not holds["ours"]:
        return Undeployed(device=device.label, state_dir=where, removed=(), left=())
    if holds["foreign"]:
        some = ", ".join(map(str, holds["foreign"][:5]))
        raise UsageError(
            replies.plain(f"{where} on device {device.label} holds what ngbkit has not put there ({some}), so nothing ")
            + "was removed. Move that away, and try again."
        )
    is_own = device.host is None and where == str(options.state_dir())
    only_env = is_own or holds["shared"]
    _refuse_in_use(device, holds, only_env, discard)
    if not only_env and not discard:
        _refuse_loss(device, holds)
    answer = carry(device, "clear", told={"only_env": only_env})
    gone = replies.take(device.label, answer, {"removed": list, "left": list})
    removed, left = ([str(name) for name in gone[which]] for which in ("removed", "left"))
    return Undeployed(device=device.label, state_dir=where, removed=removed, left=left)


def _read_holds(device: Device, answer: Mapping[str, Any]) -> dict[str, Any]:
    kinds = {"state_dir": str, "engines": list, "records": dict, "measuring": list, "unread": list, "foreign": list}
    holds = replies.take(device.label, answer, {**kinds, "ours": bool, "shared": bool})
    for one in holds["engines"]:
        replies.take(device.label, one, {"label": str, "in_env": bool})
    for trial_ids in holds["records"].values():
        replies.take(device.label, {"records": trial_ids}, {"records": list})
    return holds


def _refuse_in_use(device: Device, holds: Mapping[str, Any], only_env: bool, discard: bool) -> None:
    """An engine that lives there, or a plan of one that ngbkit has not started."""
    engines = [one for one in holds["engines"] if one["in_env"] or not only_env]
    here = [one["label"] for one in engines if one.get("host") is None]
    away = [one["host"] for one in engines if one.get("host") is not None]
    if here:
        raise DeviceError(
            f"an engine lives on device {device.label} ({replies.plain(here[0])}): wait for its run, or end the "
            "notebook or the shell that it is for, and try again."
        )
    if holds["measuring"] and not only_env:
        run_id = replies.plain(str(holds["measuring"][0]))
        raise DeviceError(f"device {device.label} measures run {run_id} now: wait for it, or stop it, and try again.")
    if away and not discard:
        raise DeviceError(
            f"an engine of device {device.label} was started on {replies.plain(str(away[0]))} and may live, which "
            f"cannot be seen from {device.shell.where}: once its job has ended, --discard removes all the same."
        )


def _refuse_loss(device: Device, holds: Mapping[str, Any]) -> None:
    """Records that are there and not here."""
    lines = [f"the journal {path} cannot be read" for path in holds["unread"]]
    for run_id, trial_ids in sorted(holds["records"].items()):
        known = _records_here(run_id)
        missing = len(set(map(str, trial_ids)) - (known or set()))
        if missing:
            way = f"`ngbkit resume {run_id}` collects them" if known is not None else "a run that is not known here"
            lines.append(f"{missing} of the {len(trial_ids)} records of run {run_id}: {way}")
    if lines:
        told = "".join(f"\n  {replies.plain(line)}" for line in lines)
        raise UsageError(f"device {device.label} holds what is not here:{told}\nTo lose that, say so: --discard.")


def _records_here(run_id: str) -> set[str] | None:
    """The trials that this client's journal of a run has a record of; None where there is no such run."""
    path = options.state_dir() / "runs" / PurePosixPath(run_id).name / "journal.sqlite"
    with suppress(NgbkitError), Journal(path, writable=False) as journal:
        return set(journal.statuses())
    return None
