"""OpenVINO passes the conformance suite, and reports its precision and streams."""

import faulthandler
import gc
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from ngbkit.compilers import openvino
from ngbkit.compilers.base import Task, Tuning
from ngbkit.errors import UnsupportedError
from ngbkit.testing import CompilerConformance
from ngbkit.testing.networks import NETWORKS
from ngbkit.testing.observation import Attempt, observe
from ngbkit.workloads.export import export_for


class TestOpenVino(CompilerConformance):
    compiler = "openvino"


def find_attempt(**options: str) -> Attempt:
    return next(attempt for attempt in observe("openvino") if attempt.options.items() >= options.items())


def test_single_precision_is_asked_for() -> None:
    """The default precision is f32, although OpenVINO itself would choose bf16 on chips that have it."""
    contract = find_attempt().contract

    assert contract is not None
    assert contract.precision == "f32"
    assert contract.overlap == 1


def test_throughput_overlaps_the_requests_it_reports() -> None:
    """The throughput hint overlaps as many requests as its facts report."""
    attempt = find_attempt(hint="throughput")

    assert attempt.contract is not None
    assert attempt.contract.overlap == attempt.facts["requests"]
    assert attempt.facts["streams"] >= 1


def test_what_is_executed_is_counted() -> None:
    """Executed nodes are counted by layer and by primitive, and so are fusions."""
    explained = find_attempt().explained

    assert 2 == explained["layers"]["Convolution"]
    assert explained["nodes_after"] == sum(explained["layers"].values()) == sum(explained["primitives"].values())
    assert 2 <= explained["nodes_fused"] < explained["nodes_after"]
    assert 0 == explained["fallbacks"]


def test_the_precision_is_that_of_the_heavy_layers() -> None:
    """The contract states the precision in which convolutions and matrix products run."""
    compiled = [attempt for attempt in observe("openvino") if attempt.contract]

    assert compiled
    for attempt in compiled:
        assert attempt.contract is not None
        assert attempt.explained["precision"] == attempt.contract.precision, attempt


def test_another_precision_than_asked_for_is_told() -> None:
    """If the chip lacks a precision, the contract has the actual one and notes the requested one."""
    for precision in ("f32", "bf16", "f16"):
        contract = find_attempt(**({} if precision == "f32" else {"precision": precision})).contract

        assert contract is not None
        assert (precision in contract.notes) is (precision != contract.precision)
    assert "f16 was asked for, and this chip computes it in bf16" == openvino._note_precision("f16", "bf16")


def build_task(folder: Path, threads: int = 2, **options: str | int) -> Task:
    small = NETWORKS["small_conv"]()
    export_for(small, folder, [1], seed=0)
    return Task(
        form="onnx",
        module=None,
        onnx=folder / "batch-1.onnx",
        inputs=small.inputs,
        arrays=[np.ones((1, 3, 16, 16), np.float32)],
        batch_size=1,
        options=openvino.COMPILER.settle(options),
        threads=threads,
        cache=folder / "cache",
        tuning=Tuning(folder=folder / "tuning"),
    )


def test_the_cache_changes_nothing_but_the_time(tmp_path: Path) -> None:
    """A program from the cache has the explanation and the contract of a compiled one."""
    task = build_task(tmp_path)
    cold, warm = openvino.compile(task), openvino.compile(task)

    assert ("miss", "hit") == (cold.facts.pop("cache"), warm.facts.pop("cache"))
    assert cold.facts == warm.facts
    assert cold.contract == warm.contract
    assert cold.explain() == warm.explain()
    np.testing.assert_array_equal(cold.fetch(cold.run()), warm.fetch(warm.run()))


@pytest.mark.parametrize(("streams", "requests"), [(0, 2), (1, 1), (2, 2)])
def test_streams_are_as_many_requests(streams: int, requests: int, tmp_path: Path) -> None:
    """Each stream has a request in flight; by default the throughput hint creates one per thread, here two."""
    program = openvino.compile(build_task(tmp_path, hint="throughput", streams=streams))

    assert (requests, requests) == (program.facts["streams"], program.contract.overlap)
    assert 2 == program.contract.threads


def test_a_cache_is_of_one_number_of_streams(tmp_path: Path) -> None:
    """A cached program is not loaded for another number of streams."""
    first = openvino.compile(build_task(tmp_path, hint="throughput", streams=1))
    second = openvino.compile(build_task(tmp_path, hint="throughput", streams=2))

    assert ("miss", "miss") == (first.facts["cache"], second.facts["cache"])


def test_streams_that_nothing_would_use_are_refused(tmp_path: Path) -> None:
    """The latency hint has one request and refuses more streams, which would only halve its threads."""
    with pytest.raises(UnsupportedError, match=r"streams=2 with hint=latency .* use hint=throughput"):
        openvino.compile(build_task(tmp_path, streams=2))


def test_streams_that_do_not_come_are_refused(tmp_path: Path) -> None:
    """More streams than threads are refused, because fewer than requested would be another column."""
    with pytest.raises(UnsupportedError, match="requested streams=3, but OpenVINO created 2"):
        openvino.compile(build_task(tmp_path, hint="throughput", streams=3))
    with pytest.raises(UnsupportedError, match="invalid streams: got -1; expected 0"):
        openvino.compile(build_task(tmp_path, hint="throughput", streams=-1))


def test_a_signal_after_two_programs_is_survived(tmp_path: Path) -> None:
    """Destroying programs leaves the thread a valid signal stack."""
    process = subprocess.run([sys.executable, __file__, str(tmp_path)], check=False)

    assert process.returncode == 0


def _compile_twice_and_signal(folder: Path) -> None:
    task = build_task(folder)
    faulthandler.enable()  # it requires a signal stack, which OpenVINO then replaces
    signals: list[int] = []
    signal.signal(signal.SIGUSR1, lambda number, frame: signals.append(number))
    first = openvino.compile(task)
    second = openvino.compile(task)
    second.explain()
    del first
    gc.collect()
    del second
    gc.collect()
    signal.raise_signal(signal.SIGUSR1)
    sys.exit(signals != [signal.SIGUSR1])


def test_importing_it_asks_nothing_of_the_network() -> None:
    """The telemetry of `import openvino` is not sent."""
    program = """
import os, sys
network = ("socket.connect", "socket.getaddrinfo")
sys.addaudithook(lambda event, args: os._exit(3) if event in network else None)
from ngbkit.compilers.openvino_runtime import openvino
openvino.Core()
sys.exit("openvino_telemetry.main" in sys.modules)
"""
    process = subprocess.run([sys.executable, "-c", program], check=False)

    assert process.returncode == 0


if __name__ == "__main__":  # a process of its own, which the signal may kill
    _compile_twice_and_signal(Path(sys.argv[1]))
