"""OpenVINO, held to the protocol."""

import subprocess
import sys

from ngbkit.testing import Attempt, CompilerConformance, observe


class TestOpenVino(CompilerConformance):
    compiler = "openvino"


def _attempt(**options: str) -> Attempt:
    return next(attempt for attempt in observe("openvino") if attempt.options == options)


def test_single_precision_is_asked_for() -> None:
    """Left alone, the compiler computes in f32, though OpenVINO itself would pick bf16 where the chip has it."""
    contract = _attempt().contract

    assert contract is not None
    assert contract.precision == "f32"
    assert contract.overlap == 1


def test_throughput_overlaps_the_requests_it_reports() -> None:
    """With the throughput hint the contract's overlap is the number of requests, and the facts tell the streams."""
    attempt = _attempt(hint="throughput")

    assert attempt.contract is not None
    assert attempt.contract.overlap == attempt.facts["requests"]
    assert attempt.facts["streams"] >= 1


def test_facts_count_what_is_executed() -> None:
    """The facts count the nodes of the graph that the plugin executes, by layer and by primitive."""
    facts = _attempt().facts

    assert facts["layers"]["Convolution"] == 2
    assert facts["nodes"] == sum(facts["layers"].values()) == sum(facts["primitives"].values())


def test_importing_it_asks_nothing_of_the_network() -> None:
    """The telemetry that `import openvino` would send is not sent."""
    program = """
import os, sys
asking = ("socket.connect", "socket.getaddrinfo")
sys.addaudithook(lambda event, args: os._exit(3) if event in asking else None)
from ngbkit.compilers.openvino_runtime import openvino
openvino.Core()
sys.exit("openvino_telemetry.main" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", program], check=False)

    assert done.returncode == 0
