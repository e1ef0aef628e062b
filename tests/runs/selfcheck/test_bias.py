"""The bias of ngbkit over the vendors' own tools, and the reports of tools that are missing or fail."""

from __future__ import annotations

import math

import pytest
from state import share_state_dir

from ngbkit.runs.selfcheck import bias, vendors
from ngbkit.workloads import blocks

state_dir = pytest.fixture(autouse=True, scope="module")(share_state_dir)


def measure(rounds: int = 1) -> dict[str, bias.Bias]:
    """The bias of a tiny block, by compiler."""
    biases = bias.measure(rounds=rounds, threads=1, workloads=[blocks.conv(8, 1, size=(8, 8))], repeats=5, seconds=0.2)
    return {record.compiler: record for record in biases}


def test_every_tool_gives_a_ratio() -> None:
    """The ratio is of latencies of the same network in seconds; a single round has no interval."""
    biases = measure()

    assert ["identity", "onnxruntime", "openvino"] == list(biases)
    assert {""} == {record.problem for record in biases.values()}
    assert {1} == {record.rounds for record in biases.values()}
    assert all(math.isclose(record.ratio, record.ours_s / record.theirs_s) for record in biases.values())
    assert all(0 < record.theirs_s < 1 and math.isnan(record.low) for record in biases.values())


def test_a_tool_that_is_missing_or_fails_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    """The others are compared nevertheless."""
    missing = {"openvino": "openvino not installed; get it by: pip install 'ngbkit[openvino]'"}
    monkeypatch.setattr(vendors.Tool, "missing", lambda tool: missing.get(tool.compiler, ""))
    run = vendors.run

    def fail(tool: str, *arguments: dict[str, str]) -> float:
        if tool == "identity":
            raise vendors.VendorError("torch.utils.benchmark failed: it printed nothing")
        return run(tool, *arguments)

    monkeypatch.setattr(vendors, "run", fail)
    biases = measure()

    assert ("", 1) == (biases["onnxruntime"].problem, biases["onnxruntime"].rounds)
    assert missing["openvino"] == biases["openvino"].problem
    assert "torch.utils.benchmark failed: it printed nothing" == biases["identity"].problem
    assert math.isnan(biases["identity"].ratio)


def test_a_tool_that_fails_is_an_error_with_its_last_output() -> None:
    """Here it does not find its network."""
    with pytest.raises(vendors.VendorError, match=r"ONNX Runtime's profiler failed: .*none\.onnx"):
        vendors.run("onnxruntime", {"onnx": "none.onnx", "threads": 1, "seconds": 0.1}, {})
