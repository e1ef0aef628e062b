"""The choice under a deadline in a shell."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from drawn import LOW, build_costed, measured, network

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
    assert cli.OK == cli.main(["choose", file, "--deadline", "1s", "--json"])

    answer = json.loads(capsys.readouterr().out)
    assert (1.0, 0.99) == (answer["deadline_s"], answer["quantile"])
    assert "openvino" == answer["choices"][0]["compiler"]
    assert 4 == len(answer["trials"])


@pytest.mark.parametrize(
    ("bound", "expected"), [("agreement>=0.4", LOW), ("agreement>=90%", "openvino"), ("accuracy>=0.95", "openvino")]
)
def test_columns_that_cost_too_much_are_excluded(
    bound: str, expected: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`--accept` excludes a faster column whose cost is beyond the bound, with the reason."""
    data = build_costed(agreement=0.5, accuracy=0.8)
    data["accuracy"].loc[{"compiler": "openvino"}] = 0.96
    file = str(storage.save(data, tmp_path / "costed.nc"))
    command = ["choose", file, "--deadline", "1h", "--quantile", "0.5", "--accept", bound]
    assert cli.OK == cli.main([*command, "--json"])
    assert expected == json.loads(capsys.readouterr().out)["choices"][0]["compiler"]

    assert cli.OK == cli.main(command)
    assert (expected != LOW) == (f"accepted: {bound.replace('90%', '0.9')}" in capsys.readouterr().out)


def test_a_bound_without_its_cost_is_an_error(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A run without samples has no cost to bound, and a bound that does not parse has its example."""
    command = ["choose", file, "--deadline", "1s", "--accept"]
    assert cli.INVALID == cli.main([*command, "agreement=0.9"])
    assert "expected a cost and its bound, such as agreement>=0.99" in capsys.readouterr().err

    assert cli.OK != cli.main([*command, "agreement>=0.9"])
    assert "needs agreement, which this dataset lacks. Measure with" in capsys.readouterr().err


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
