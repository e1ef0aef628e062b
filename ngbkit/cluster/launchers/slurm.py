"""Launcher of an engine in a Slurm job, from a login node.

The controller listens, encrypted, on the address of this machine that the compute nodes reach. The engine reads its
settings from a file in the shared state folder, which only the user can read and which it deletes. An engine whose
client was killed ends its job after six minutes of silence.
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
from ngbkit.cluster.engine import Engine, create_identity
from ngbkit.cluster.hub import Hub
from ngbkit.cluster.launchers.base import SILENT, Starter, build_python_command, quote_state_dir
from ngbkit.device.engine import Settings
from ngbkit.errors import DeviceError
from ngbkit.options import LAYOUT

# Slurm does not list a job that has ended (""); jobs in these states end soon.
_ENDED = {"", "COMPLETED", "COMPLETING", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED"}
_POLL_S = 2.0
_CANCEL_S = 30.0
# The time limit for the engine of a running job to register: a shared file system can make imports slow.
_REGISTER_S = 180.0


@dataclass(slots=True, eq=False)
class _Job:
    device: Device
    number: str
    files: str
    _polled_at: float = 0.0
    _state: str = field(default="PENDING")
    reason: str = ""

    def read_state(self) -> str:
        """Return Slurm's name of its state, at most two seconds old; ``""`` for a job that Slurm does not list."""
        if time.monotonic() - self._polled_at > _POLL_S:
            output = self.device.shell.run(f"squeue -h -j {self.number} -o '%T %r' 2>/dev/null || true")
            self._state, _, self.reason = output.strip().partition(" ")
            self._polled_at = time.monotonic()
        return self._state

    def is_alive(self) -> bool:
        with suppress(DeviceError):  # without an answer of the login node the state is unknown
            return self.read_state() not in _ENDED
        return True

    def cancel(self) -> None:
        """Cancel it, and wait until Slurm no longer lists it."""
        self.device.shell.run(f"scancel {self.number} || true")
        deadline = time.monotonic() + _CANCEL_S
        while time.monotonic() < deadline and self.read_state() != "":
            time.sleep(0.5)
        self.device.shell.run(f"rm -rf {self.files} {self.files}.*")


def start(device: Device, starter: Starter = SILENT) -> Engine:
    """Submit the engine of a device as a job, and wait until it has registered, however long the queue is."""
    identity, token = create_identity(device.label), secrets.token_hex(8)
    with ExitStack() as undo:
        try:
            hub = Hub.start(device.address)
            undo.callback(hub.stop)
            job = _submit(device, identity, token, hub)
            undo.callback(job.cancel)
            view = _wait(job, hub, identity, starter)
        except DeviceError as error:
            raise DeviceError(f"the engine of device {device.label} did not start: {error}") from error
        resources = undo.pop_all()
    return Engine(
        device=device.label, view=view, stop=resources.close, is_connected=lambda: hub.is_alive and job.is_alive()
    )


def _wait(job: _Job, hub: Hub, identity: str, starter: Starter) -> Any:
    """Wait until the job's engine has registered; return its view."""
    deadline = math.inf
    while True:
        view = hub.wait_for_engine(identity, _POLL_S)
        if view is not None:
            return view
        if starter.stopped():
            raise InterruptedError("stopped while waiting for the job")
        state = job.read_state()
        if state in _ENDED:
            raise DeviceError(f"job {job.number} has ended; its log:\n{_read_log(job)}")
        if state != "RUNNING":
            starter.say(f"{job.device.label}: job {job.number} is {state.lower()} ({job.reason})")
            continue
        deadline = min(deadline, time.monotonic() + _REGISTER_S)
        if time.monotonic() > deadline:
            raise DeviceError(
                f"job {job.number} runs, but its engine did not reach {job.device.address} in {_REGISTER_S:g} s: is "
                f"that the address of this machine that compute nodes see? Its log:\n{_read_log(job)}"
            )


def _submit(device: Device, identity: str, token: str, hub: Hub) -> _Job:
    settings = Settings(
        label=device.label,
        identity=identity,
        connection=hub.connection,
        state_dir=device.state_dir,
        cores=device.cores,
        environment=dict(device.environment()),
    )
    home = f"{quote_state_dir(device)}/{LAYOUT.engines}"
    save = f"umask 077 && mkdir -p {home} && cd {home} && cat > {token}.told && pwd"
    folder = device.shell.run(save, stdin=settings.to_json().encode()).splitlines()[-1]
    file, log = (shlex.quote(f"{folder}/{token}.{suffix}") for suffix in ("told", "log"))
    command = build_python_command(device, "-m", "ngbkit.device.launch")
    script = f"#!/bin/sh\numask 077\n{device.setup}\n{command} --attached {file}\n"
    options = shlex.join(device.sbatch)
    try:
        # The script is passed on the standard input, so that no file of it remains.
        output = device.shell.run(
            f"sbatch --parsable --export=ALL --job-name=ngbkit-{device.label} --output={log} {options}",
            stdin=script.encode(),
        )
    except DeviceError:
        device.shell.run(f"rm -f {file}")
        raise
    number = output.strip().splitlines()[-1].partition(";")[0]
    if not re.fullmatch(r"\d+", number):
        raise DeviceError(f"invalid output of sbatch: got {output.strip()!r}; expected the number of a job")
    return _Job(device, number, shlex.quote(f"{folder}/{token}"))


def _read_log(job: _Job) -> str:
    return job.device.shell.run(f"tail -c 3000 {job.files}.log 2>/dev/null || true").strip() or "(empty)"
