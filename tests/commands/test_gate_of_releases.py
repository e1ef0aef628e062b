"""A gate of many releases in a shell: its request, its report, and its exit code."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ngbkit import cli
from ngbkit.runs.bisection import bisecting
from ngbkit.runs.bisection.search import Bisection, GateStep

STEP = GateStep(
    run_id="run0",
    release="",
    slowdown=1.05,
    low=1.04,
    high=1.06,
    conclusive=True,
    reading="1.23.0 is slower",
    seconds=12.0,
)


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The requests that arrive; each has the answer that the last release is slower, unless its margin is larger."""
    arrived: list[dict[str, Any]] = []

    def bisect(network: str, compiler: str, releases: str, **keywords: Any) -> Bisection:
        arrived.append({"network": network, "compiler": compiler, "releases": releases, **keywords})
        keywords["report"]("gate 1: 1.23.0 is slower")
        return Bisection(
            network="net",
            compiler=compiler,
            device="cpu",
            releases=("1.19.0", "1.23.0"),
            skipped={},
            margin=0.01,
            verdict="not slower" if keywords["margin"] else "slower",
            suspects=() if keywords["margin"] else ("1.23.0",),
            probability=1.0,
            slowdown=1.05,
            low=1.04,
            high=1.06,
            gates=(STEP,),
        )

    monkeypatch.setattr(bisecting, "bisect", bisect)
    return arrived


def test_the_report_has_the_release_the_gates_and_their_price(
    requests: list[dict[str, Any]], mlp_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A slower release exits with 1; progress goes to stderr."""
    words = ["gate", str(mlp_file), "-c", "onnxruntime{optimization:basic}", "-b", "8", "-r", "20"]
    code = cli.main([*words, "--releases", "1.19..1.23"])
    printed = capsys.readouterr()
    (request,) = requests

    assert cli.FAILED == code
    assert 'onnxruntime{"optimization":"basic"}' == request["compiler"]
    assert {"releases": "1.19..1.23", "repeats": 20}.items() <= request.items()
    assert [8] == list(request["batch_sizes"])
    assert "net with onnxruntime{" in printed.out
    assert "is slower since 1.23.0 (100 % sure, of 2 releases): a call takes 1.050 ± 0.010 times" in printed.out
    assert "1     1.23.0   1.050 ± 0.010     1.23.0 is slower  run0" in printed.out
    assert "1 gate in 12 s." in printed.out
    assert "ngbkit: gate 1: 1.23.0 is slower\n" == printed.err


def test_no_regression_exits_with_0(
    requests: list[dict[str, Any]], mlp_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The JSON has all of it; --quiet shows no progress."""
    words = ["gate", str(mlp_file), "-c", "onnxruntime", "--releases", "1.19.0,1.23.0", "--margin", "9%"]
    code = cli.main([*words, "--json", "--quiet"])
    printed = capsys.readouterr()
    answer = json.loads(printed.out)

    assert cli.OK == code
    assert "1.19.0,1.23.0" == requests[0]["releases"]
    assert "not slower" == answer["verdict"]
    assert "run0" == answer["gates"][0]["run_id"]
    assert not printed.err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["-c", "onnxruntime,openvino"],
            "got 1 networks and the compilers onnxruntime, openvino; with --releases expected one of each",
        ),
        ([], "got 1 networks and the compilers none"),
        (["net2.onnx", "-c", "onnxruntime"], "got 2 networks"),
        (["-c", "onnxruntime", "--together"], "unknown option '--together'"),
        (["-c", "onnxruntime", "--race"], "got --releases and --race, which is of a gate with two sides"),
        (["-c", "onnxruntime", "--after-python", "python"], "got --releases and --after-python"),
    ],
)
def test_an_invalid_request_is_refused(
    mlp_file: Path, capsys: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    """The error says what a gate of releases takes."""
    code = cli.main(["gate", str(mlp_file), *words, "--releases", "1.19..1.23"])

    assert cli.INVALID == code
    assert message in capsys.readouterr().err
