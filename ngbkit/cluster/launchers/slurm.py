"""An engine in a Slurm job, from a login node.

The controller listens, encrypted, on the address of this machine that compute nodes reach; what the engine is told lies
in a file of the shared state folder that only the user can read and that is gone once it has been read. An engine whose
client was killed leaves its job after six minutes of silence.
"""

from __future__ import annotations

import math
import re
import secrets
import shlex
import time
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from typing import Any

from ngbkit.cluster.devices import Device
from ngbkit.cluster.engine import Engine, identity
from ngbkit.cluster.hub import Hub
from ngbkit.cluster.launchers.base import NOBODY, Starter, python, state_dir
from ngbkit.device.engine import Settings
from ngbkit.errors import DeviceError

# A job that Slurm does not list any more has ended; these are about to.
_ENDED = {"", "COMPLETED", "COMPLETING", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED"}
_LOOK_S = 2.0
_GONE_S = 30.0
# How long a job that runs may take until its engine has registered: a shared file system can make imports slow.
_REGISTER_S = 180.0


@dataclass(slots=True, eq=False)
class _Job:
    device: Device
    number: str
    files: str
    _looked_at: float = 0.0
    _state: str = field(default="PENDING")
    reason: str = ""

    def state(self) -> str:
        """What Slurm calls its state, asked at most every two seconds; ``""`` where it does not know it."""
        if time.monotonic() - self._looked_at > _LOOK_S:
            said = self.device.shell.run(f"squeue -h -j {self.number} -o '%T %r' 2>/dev/null || true")
            self._state, _, self.reason = said.strip().partition(" ")
            self._looked_at = time.monotonic()
        return self._state

    def alive(self) -> bool:
        with suppress(DeviceError):  # a login node that does not answer says nothing of the job
            return self.state() not in _ENDED
        return True

    def cancel(self) -> None:
        """End it, and wait until Slurm has let go of it."""
        self.device.shell.run(f"scancel {self.number} || true")
        ends = time.monotonic() + _GONE_S
        while time.monotonic() < ends and self.state() != "":
            time.sleep(0.5)
        self.device.shell.run(f"rm -rf {self.files} {self.files}.*")


def start(device: Device, starter: Starter = NOBODY) -> Engine:
    """Submit a job that is the device's engine, and wait until it has come up, however long the queue is.

    Raises
    ------
    DeviceError
        It was refused, or ended; the message holds what Slurm or the job's log says.
    """
    name, token = identity(device.label), secrets.token_hex(8)
    with ExitStack() as undo:
        try:
            hub = Hub.start(device.address)
            undo.callback(hub.stop)
            job = _submit(device, name, token, hub)
            undo.callback(job.cancel)
            view = _wait(job, hub, name, starter)
        except DeviceError as error:
            raise DeviceError(f"the engine of device {device.label} did not come up: {error}") from error
        closing = undo.pop_all()
    return Engine(device=device.label, view=view, stop=closing.close, alive_too=lambda: hub.alive and job.alive())


def _wait(job: _Job, hub: Hub, name: str, starter: Starter) -> Any:
    """The view of the job's engine, as soon as it has registered."""
    register_by = math.inf
    while True:
        view = hub.wait_for(name, _LOOK_S)
        if view is not None:
            return view
        if starter.stopped():
            raise InterruptedError("stopped while the job was waited for")
        state = job.state()
        if state in _ENDED:
            raise DeviceError(f"job {job.number} has ended; its log says:\n{_log(job)}")
        if state != "RUNNING":
            starter.say(f"{job.device.label}: job {job.number} is {state.lower()} ({job.reason})")
            continue
        register_by = min(register_by, time.monotonic() + _REGISTER_S)
        if time.monotonic() > register_by:
            raise DeviceError(
                f"job {job.number} runs, and its engine has not reached {job.device.address} in {_REGISTER_S:g} s: is "
                f"that the address of this machine that compute nodes see? Its log says:\n{_log(job)}"
            )


def _submit(device: Device, name: str, token: str, hub: Hub) -> _Job:
    settings = Settings(
        label=device.label,
        identity=name,
        connection=hub.connection,
        state_dir=device.state_dir,
        cores=device.cores,
        environment=dict(device.environment()),
    )
    home = f"{state_dir(device)}/engines"
    keep = f"umask 077 && mkdir -p {home} && cd {home} && cat > {token}.told && pwd"
    folder = device.shell.run(keep, given=settings.to_json().encode()).splitlines()[-1]
    told, log = (shlex.quote(f"{folder}/{token}.{kind}") for kind in ("told", "log"))
    script = f"#!/bin/sh\numask 077\n{device.setup}\n{python(device, '-m', 'ngbkit.device.launch')} --attached {told}\n"
    options = shlex.join(device.sbatch)
    try:
        # The script comes on the standard input: a file of it would be left behind.
        said = device.shell.run(
            f"sbatch --parsable --export=ALL --job-name=ngbkit-{device.label} --output={log} {options}",
            given=script.encode(),
        )
    except DeviceError:
        device.shell.run(f"rm -f {told}")
        raise
    number = said.strip().splitlines()[-1].partition(";")[0]
    if not re.fullmatch(r"\d+", number):
        raise DeviceError(f"sbatch answered {said.strip()!r} in the place of the number of a job")
    return _Job(device, number, shlex.quote(f"{folder}/{token}"))


def _log(job: _Job) -> str:
    return job.device.shell.run(f"tail -c 3000 {job.files}.log 2>/dev/null || true").strip() or "(nothing)"
