"""The choice under a deadline in a shell."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from drawn import measured, network

from ngbkit import cli
from ngbkit.dataset import storage


@pytest.fixture
def file(tmp_path: Path) -> str:
    return str(storage.save(measured(network("net")), tmp_path / "out.nc"))


def test_the_choice_is_printed(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    """`choose` prints a table with sentences below."""
    assert cli.OK == cli.main(["choose", file, "--deadline", "1s", "--quantile", "0.5"])

    printed = capsys.readouterr().out
    assert "Highest throughput within 1 s for 50 % of calls" in printed
    assert "net in openvino at batch 4 on cpu: " in printed


def test_json_has_every_configuration(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The JSON of a choice has every configuration."""
    command = ["choose", file, "--deadline", "1s", "--json", "--per", "all", "--contended", "--probability", "0.01"]
    assert cli.OK == cli.main(command)

    answer = json.loads(capsys.readouterr().out)
    assert (1.0, 0.99) == (answer["deadline_s"], answer["quantile"])
    assert "openvino" == answer["choices"][0]["compiler"]
    assert 4 == len(answer["trials"])


def test_the_figure_is_written(file: str, tmp_path: Path) -> None:
    """`choose` writes a figure with the deadline and the quantile."""
    target = tmp_path / "front.svg"
    assert cli.OK == cli.main(["choose", file, "--deadline", "5ms", "--quantile", "0.9", "--figure", str(target)])

    assert "the deadline, 5 ms" in target.read_text()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "the following arguments are required: --deadline"),
        (["--deadline", "soon"], "invalid deadline: got 'soon'; expected a time above 0 such as '50ms'"),
        (["--deadline", "1s", "--quantile", "99"], "invalid quantile: got 99.0; expected a share"),
    ],
)
def test_invalid_arguments_are_refused(
    file: str, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Invalid arguments of `choose` end with the exit code for invalid arguments."""
    assert cli.INVALID == cli.main(["choose", file, *arguments])
    assert message in capsys.readouterr().err
