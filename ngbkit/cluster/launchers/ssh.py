"""Launcher of an engine on a machine behind ssh: nothing listens beyond loopback, and nothing remains there.

The controller runs here, on loopback; a reverse tunnel (`ngbkit.cluster.tunnel`) forwards its ports, and the port of
the keepalive connection, by which an engine knows that its client lives. With ``network = "direct"`` there is no
tunnel: the controller listens, encrypted, on an address of this machine.
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any

from ngbkit.cluster import hubs
from ngbkit.cluster.devices import Device
from ngbkit.cluster.engine import Engine, create_identity
from ngbkit.cluster.launchers.base import SILENT, Starter, build_python_command, build_settings, starts
from ngbkit.cluster.tunnel import Tunnel
from ngbkit.device.engine import Settings
from ngbkit.device.launch import START_S
from ngbkit.errors import DeviceError
from ngbkit.user_text import parse_json
from ngbkit.workloads.subprocesses import build_arguments

# The keys of the ports in the connection file of ipyparallel's controller; the last is a list.
PORTS = ("registration", "control", "mux", "task", "hb_ping", "hb_pong", "iopub")
PORT_LIST = "broadcast"


def start(device: Device, starter: Starter = SILENT) -> Engine:
    """Start the engine of a device over ssh; the error for a failure has a remedy or the engine's log."""
    with starts.limit(starter):
        return _start(device)


def _start(device: Device) -> Engine:
    # Python on the device starts while the controller starts here, and waits for its settings.
    process = device.shell.start(
        build_python_command(device, *build_arguments("ngbkit.device.launch")),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    identity = create_identity(device.label)
    tunnel: Tunnel | None = None
    with ExitStack() as undo:
        undo.callback(process.communicate)
        undo.callback(process.kill)
        try:
            hub, release = hubs.borrow(device, identity)
            undo.callback(release)
            if device.network == "tunnel":
                tunnel = Tunnel.open(str(device.host), list_ports(hub.connection))
                undo.callback(tunnel.close)
            connection = hub.connection if tunnel is None else map_ports(hub.connection, tunnel.ports)
            keepalive = None if tunnel is None else tunnel.keepalive
            settings = build_settings(device, identity, connection, lifeline=keepalive)
            answer = _launch(device, process, settings)
            view = hub.wait_for_engine(identity, START_S)
            if view is None:
                raise DeviceError(hub.explain_absence())
        except (DeviceError, OSError) as error:
            raise DeviceError(f"the engine of device {device.label} did not start: {error}") from error
        undo.pop_all()

    def stop() -> None:
        if tunnel is not None:
            tunnel.close()  # the goodbye ends the engine
        else:
            stop_engine = build_arguments("ngbkit.device.launch", "--stop", answer["folder"])
            device.shell.run(build_python_command(device, *stop_engine))
        release()

    return Engine(
        device=device.label,
        view=view,
        stop=stop,
        is_connected=lambda: hub.is_alive and not (tunnel is not None and tunnel.state == "lost"),
        trouble=lambda: tunnel.output if tunnel is not None and tunnel.state == "down" else "",
    )


def list_ports(connection: Mapping[str, Any]) -> list[int]:
    """List the ports that an engine connects to."""
    return [*(connection[name] for name in PORTS), *connection[PORT_LIST]]


def map_ports(connection: Mapping[str, Any], ports: Mapping[int, int]) -> dict[str, Any]:
    """Return the connection with the ports at the other end of a tunnel."""
    singles = {name: ports[connection[name]] for name in PORTS}
    return {**connection, **singles, PORT_LIST: [ports[port] for port in connection[PORT_LIST]]}


def _launch(device: Device, process: subprocess.Popen[bytes], settings: Settings) -> dict[str, Any]:
    """Send the settings to the launch on the device; return its answer."""
    try:
        out, errors = process.communicate(settings.to_json().encode(), timeout=2 * START_S)
    except subprocess.TimeoutExpired:
        raise DeviceError(f"{device.shell.machine} did not answer within {2 * START_S:g} s") from None
    output = errors.decode(errors="replace")
    if process.returncode == 127 or "No module named" in output:
        raise DeviceError(f"{output.strip()}. Install ngbkit there: `ngbkit deploy {device.label}`")
    if process.returncode:
        raise device.shell.explain(process.returncode, output)
    try:
        # A login shell may print before it.
        answer: dict[str, Any] = parse_json(out.decode(errors="replace").strip().splitlines()[-1])
    except (IndexError, ValueError):
        raise DeviceError(f"invalid answer from {device.shell.machine}: got {out[-200:]!r}; expected JSON") from None
    if "error" in answer:
        raise DeviceError(str(answer["error"]))
    return answer
