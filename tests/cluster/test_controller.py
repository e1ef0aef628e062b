"""The process of a controller: its ports, and its end with its schedulers."""

from __future__ import annotations

import socket
from pathlib import Path

import psutil
import pytest
import zmq
from patience import wait_until
from watching import Processes

from ngbkit.api import Sweep
from ngbkit.cluster import engines
from ngbkit.cluster.controller import _reserved, reserve_port
from ngbkit.cluster.hubs import Hub
from ngbkit.workloads.base import Workload


def test_a_reserved_port_is_for_its_scheduler_alone() -> None:
    """A socket of another program does not get the port, and a scheduler listens on it."""
    port = reserve_port()
    try:
        with socket.socket() as other, pytest.raises(OSError, match="in use"):
            other.bind(("127.0.0.1", port))
        with zmq.Context() as context, context.socket(zmq.ROUTER) as scheduler:
            scheduler.bind(f"tcp://127.0.0.1:{port}")
    finally:
        _reserved.pop(port).close()


@pytest.mark.parametrize("number", [1, 7, 8])
def test_a_controller_whose_port_another_program_has_is_replaced(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program that chose a port before may listen on it first, as a Jupyter kernel does: other ports are tried."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        # The ports of the registration, which the controller itself needs, and of its heart monitor.
        program = f"""
import os, ngbkit.cluster.controller as controller
reserve, ports, mark = controller.reserve_port, [], {str(tmp_path / "mark")!r}
def reserve_port():
    ports.append(reserve())
    if len(ports) == {number} and not os.path.exists(mark):
        open(mark, "w").close()
        return {other.getsockname()[1]}
    return ports[-1]
controller.reserve_port = reserve_port
controller.main()
"""
        starts = []

        def build_arguments(module: str, *arguments: str) -> list[str]:
            starts.append(module)
            return ["-c", program, *arguments]

        monkeypatch.setattr("ngbkit.cluster.hubs.build_arguments", build_arguments)
        # For a user without a home, IPython makes a temporary folder, and warns.
        monkeypatch.setattr("ipyparallel.client.client.get_ipython_dir", pytest.fail)
        Hub.start().stop()

    assert 2 == len(starts)


def test_a_sweep_survives_the_end_of_a_scheduler(mlp: Workload, processes: Processes) -> None:
    """A controller ends with any of its schedulers, instead of waiting for ever; another one takes over."""
    run = Sweep(mlp, ["onnxruntime"], range(1, 17), repeats=10, threads=1, devices=["cpu"]).start()
    try:
        wait_until(lambda: run.progress.done > 0)
        first = find_controllers(processes)
        max(processes("ngbkit.cluster.controller"), key=psutil.Process.create_time).kill()
        data = run.result()
        second = find_controllers(processes)
    finally:
        engines.close()

    assert {"ok"} == set(data["status"].values.ravel())
    assert [1, 1] == [len(first), len(second)]
    assert first != second


def find_controllers(processes: Processes) -> list[psutil.Process]:
    """Find the controllers of this process; their schedulers are their children."""
    return [process for process in processes("ngbkit.cluster.controller") if process.ppid() == psutil.Process().pid]
