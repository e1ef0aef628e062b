"""The process of a controller: its ports, and its end with its schedulers."""

from __future__ import annotations

import socket

import psutil
import pytest
import zmq
from patience import wait_until
from watching import Processes

from ngbkit.api import Sweep
from ngbkit.cluster import engines
from ngbkit.cluster.controller import _reserved, reserve_port
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
