"""ngbkit beside the vendors' own tools: each gives a latency, and what is missing says so."""

from __future__ import annotations

import math

import pytest
from state import share_state_dir

from ngbkit.runs.selfcheck import bias, vendors
from ngbkit.workloads import blocks

state_dir = pytest.fixture(autouse=True, scope="module")(share_state_dir)


def measure(rounds: int = 1) -> dict[str, bias.Bias]:
    """The bias of a tiny block, by compiler."""
    found = bias.measure(rounds=rounds, threads=1, workloads=[blocks.conv(8, 1, size=(8, 8))], repeats=5, seconds=0.2)
    return {one.compiler: one for one in found}


def test_every_tool_gives_a_ratio() -> None:
    """Of latencies of the same network, in seconds; a single round has no interval."""
    found = measure()

    assert ["identity", "onnxruntime", "openvino"] == list(found)
    assert {""} == {one.problem for one in found.values()}
    assert {1} == {one.rounds for one in found.values()}
    assert all(math.isclose(one.ratio, one.ours_s / one.theirs_s) for one in found.values())
    assert all(0 < one.theirs_s < 1 and math.isnan(one.low) for one in found.values())


def test_a_tool_that_is_missing_or_fails_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    """The others are compared all the same."""
    missing = {"openvino": "openvino not installed; get it by: pip install 'ngbkit[openvino]'"}
    monkeypatch.setattr(vendors.Tool, "missing", lambda tool: missing.get(tool.compiler, ""))
    run = vendors.run

    def fail(tool: str, *about: dict[str, str]) -> float:
        if tool == "identity":
            raise vendors.VendorError("torch.utils.benchmark gave no latency: it printed nothing")
        return run(tool, *about)

    monkeypatch.setattr(vendors, "run", fail)
    found = measure()

    assert ("", 1) == (found["onnxruntime"].problem, found["onnxruntime"].rounds)
    assert missing["openvino"] == found["openvino"].problem
    assert "torch.utils.benchmark gave no latency: it printed nothing" == found["identity"].problem
    assert math.isnan(found["identity"].ratio)


def test_a_tool_that_ends_early_is_an_error_with_its_last_words() -> None:
    """Whatever it is that ended it."""
    with pytest.raises(vendors.VendorError, match=r"ONNX Runtime's profiler gave no latency: .*none\.onnx"):
        vendors.run("onnxruntime", {"onnx": "none.onnx", "threads": 1, "seconds": 0.1}, {})
