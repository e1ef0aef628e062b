"""Launcher of an engine in a Slurm job, from a login node.

The controller listens, encrypted, on the address of this machine that the compute nodes reach. The engine reads its
settings from a file in the shared state folder, which only the user can read and which it deletes. An engine whose
client was killed ends its job after six minutes of silence.
"""

from __future__ import annotations

import math
import secrets
import shlex
import time
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from ngbkit.cluster import hubs
from ngbkit.cluster.devices import Device
from ngbkit.cluster.engine import Engine, create_identity
from ngbkit.cluster.hubs import Hub
from ngbkit.cluster.launchers.base import (
    SILENT,
    Starter,
    build_python_command,
    build_settings,
    quote_state_dir,
    starts,
)
from ngbkit.errors import DeviceError
from ngbkit.fleet.job_queue import JobQueue, build_submission, get_queue, parse_number
from ngbkit.options import LAYOUT
from ngbkit.workloads.subprocesses import build_arguments

# How long to wait for the registration of an engine before its job is asked about; the time limits of a cancelled job,
# and of the engine of a running one: a shared file system can make imports slow.
_POLL_S, _PAUSE_S = 2.0, 0.5
_CANCEL_S = 30.0
_REGISTER_S = 180.0


@dataclass(slots=True, eq=False)
class _Job:
    device: Device
    number: str
    files: str

    @property
    def queue(self) -> JobQueue:
        return get_queue(self.device.host)

    def is_alive(self) -> bool:
        return not self.queue.read(self.number).has_ended

    def cancel(self) -> None:
        """Cancel it, and wait until nothing of it runs."""
        try:
            self.device.shell.run(f"scancel {self.number} || true")
            self.queue.wait_until_gone(self.number, _CANCEL_S)
            self.device.shell.run(f"rm -rf {self.files} {self.files}.*")
        finally:
            self.queue.remove(self.number)


def start(device: Device, starter: Starter = SILENT) -> Engine:
    """Submit the engine of a device as a job, and wait until it has registered, however long the queue is."""
    identity, token = create_identity(device.label), secrets.token_hex(8)
    with ExitStack() as undo:
        try:
            with starts.limit(starter):
                hub, release = hubs.borrow(device, identity)
                undo.callback(release)
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
    deadline, previous = math.inf, ""
    while True:
        view = hub.wait_for_engine(identity, _POLL_S, pause_s=_PAUSE_S)
        if view is not None:
            return view
        if not hub.is_alive:
            raise DeviceError(hub.explain_absence())
        if starter.stopped():
            raise InterruptedError("stopped while waiting for the job")
        state = job.queue.read(job.number)
        if state.has_ended:
            raise DeviceError(f"job {job.number} has ended ({state.name or 'unlisted'}); its log:\n{_read_log(job)}")
        text = f"{job.device.label}: job {job.number} is {state.name.lower()} ({state.reason})"
        if job.queue.fault:
            text = f"{job.device.label}: the state of job {job.number} is unknown ({job.queue.fault}); trying again"
        elif state.name == "RUNNING":
            deadline = min(deadline, time.monotonic() + _REGISTER_S)
        if text != previous and (job.queue.fault or state.name != "RUNNING"):
            starter.report(text)
        previous = text
        if time.monotonic() > deadline:
            raise DeviceError(
                f"job {job.number} runs, but its engine did not reach {job.device.address} in {_REGISTER_S:g} s: is "
                f"that the address of this machine that compute nodes see? Its log:\n{_read_log(job)}"
            )


def _submit(device: Device, identity: str, token: str, hub: Hub) -> _Job:
    settings = build_settings(device, identity, hub.connection)
    home = f"{quote_state_dir(device)}/{LAYOUT.engines}"
    save = f"umask 077 && mkdir -p {home} && cd {home} && cat > {token}.told && pwd"
    folder = device.shell.run(save, stdin=settings.to_json().encode()).splitlines()[-1]
    file, log = (shlex.quote(f"{folder}/{token}.{suffix}") for suffix in ("told", "log"))
    command = build_python_command(device, *build_arguments("ngbkit.device.launch"))
    script = f"#!/bin/sh\numask 077\n{device.setup}\n{command} --attached {file}\n"
    try:
        # The script is passed on the standard input, so that no file of it remains.
        output = device.shell.run(build_submission(device.label, log, device.sbatch), stdin=script.encode())
    except DeviceError:
        device.shell.run(f"rm -f {file}")
        raise
    job = _Job(device, parse_number(output), shlex.quote(f"{folder}/{token}"))
    job.queue.add(job.number, device.shell)
    return job


def _read_log(job: _Job) -> str:
    return job.device.shell.run(f"tail -c 3000 {job.files}.log 2>/dev/null || true").strip() or "(empty)"
