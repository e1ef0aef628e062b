"""An engine on a machine that ssh reaches: nothing listens beyond loopback, and nothing is left there.

The controller is here, on loopback; a reverse tunnel (`ngbkit.cluster.tunnel`) carries the ports of its engines, and
the lifeline by which an engine knows that its client is there. With ``network = "direct"`` there is no tunnel: the
controller listens on an address of this machine, encrypted.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any

from ngbkit.cluster.devices import Device
from ngbkit.cluster.engine import Engine, identity
from ngbkit.cluster.hub import START_S, Hub
from ngbkit.cluster.launchers.base import NOBODY, Starter, python
from ngbkit.cluster.tunnel import Tunnel
from ngbkit.device.engine import Settings
from ngbkit.errors import DeviceError

# What the ports of an engine are called in what ipyparallel's controller writes; the last is a list.
PORTS = ("registration", "control", "mux", "task", "hb_ping", "hb_pong", "iopub")
PORT_LIST = "broadcast"


def start(device: Device, starter: Starter = NOBODY) -> Engine:
    """Start the engine of a device over ssh.

    Raises
    ------
    DeviceError
        The machine cannot be reached, has no ngbkit, or the engine did not come up; the message says what to do, or
        holds the log of the engine.
    """
    del starter  # it is up in seconds, or not at all
    # Python over there starts while the controller starts here; it then waits for what it is to do.
    waiting = device.shell.start(
        python(device, "-m", "ngbkit.device.launch"),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    name = identity(device.label)
    tunnel: Tunnel | None = None
    with ExitStack() as undo:
        undo.callback(_end, waiting)
        try:
            hub = Hub.start(device.address if device.network == "direct" else None)
            undo.callback(hub.stop)
            if device.network == "tunnel":
                tunnel = Tunnel.open(str(device.host), ports(hub.connection))
                undo.callback(tunnel.close)
            about = _answer(device, waiting, _settings(device, name, hub, tunnel))
            view = hub.wait_for(name, START_S)
            if view is None:
                raise DeviceError(f"its engine did not register in {START_S:g} s")
        except (DeviceError, OSError) as error:
            raise DeviceError(f"the engine of device {device.label} did not come up: {error}") from error
        undo.pop_all()

    def stop() -> None:
        if tunnel is not None:
            tunnel.close()  # its goodbye ends the engine
        else:
            device.shell.run(python(device, "-m", "ngbkit.device.launch", "--stop", about["folder"]))
        hub.stop()

    return Engine(
        device=device.label,
        view=view,
        stop=stop,
        alive_too=lambda: hub.alive and not (tunnel is not None and tunnel.lost),
        trouble=lambda: tunnel.said if tunnel is not None and tunnel.state == "down" else "",
    )


def ports(connection: Mapping[str, Any]) -> list[int]:
    """Every port that an engine connects to."""
    return [*(connection[name] for name in PORTS), *connection[PORT_LIST]]


def moved(connection: Mapping[str, Any], found: Mapping[int, int]) -> dict[str, Any]:
    """The connection as an engine at the other end of a tunnel sees it."""
    singles = {name: found[connection[name]] for name in PORTS}
    return {**connection, **singles, PORT_LIST: [found[port] for port in connection[PORT_LIST]]}


def _settings(device: Device, name: str, hub: Hub, tunnel: Tunnel | None) -> Settings:
    return Settings(
        label=device.label,
        identity=name,
        connection=hub.connection if tunnel is None else moved(hub.connection, tunnel.ports),
        state_dir=device.state_dir,
        cores=device.cores,
        environment=dict(device.environment()),
        lifeline=None if tunnel is None else tunnel.lifeline,
    )


def _end(waiting: subprocess.Popen[bytes]) -> None:
    waiting.kill()
    waiting.communicate()


def _answer(device: Device, waiting: subprocess.Popen[bytes], settings: Settings) -> dict[str, Any]:
    """What the launch over there answers."""
    try:
        out, errors = waiting.communicate(settings.to_json().encode(), timeout=2 * START_S)
    except subprocess.TimeoutExpired:
        raise DeviceError(f"{device.shell.where} did not answer within {2 * START_S:g} s") from None
    said = errors.decode(errors="replace")
    if waiting.returncode == 127 or "No module named" in said:
        raise DeviceError(f"{said.strip()}. Install ngbkit there: `ngbkit deploy {device.label}`")
    if waiting.returncode:
        raise device.shell.explain(waiting.returncode, said)
    try:
        # What a login shell prints of its own comes before it.
        answer: dict[str, Any] = json.loads(out.decode(errors="replace").strip().splitlines()[-1])
    except (IndexError, ValueError):
        raise DeviceError(f"{device.shell.where} answered {out[-200:]!r} in the place of JSON") from None
    if "error" in answer:
        raise DeviceError(str(answer["error"]))
    return answer
