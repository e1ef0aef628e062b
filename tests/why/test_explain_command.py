"""``ngbkit explain``: the gap between two columns of a file, operator by operator."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from profiled import FUSED, SPLIT, make_explained

import ngbkit
from ngbkit import cli


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("explained") / "out.nc"
    ngbkit.save(make_explained(batch_sizes=(1, 8)), path)
    return str(path)


def test_it_prints_the_sentence_and_the_pieces(file: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """The sentence is first, then the table of pieces; the figure, by blocks, is a file."""
    figure = tmp_path / "why.svg"
    words = ["explain", file, FUSED, SPLIT, "batch_size=8", "--figure", str(figure)]

    assert 0 == cli.main(words)
    text = capsys.readouterr().out
    assert text.startswith("openvino is 1.2")
    assert "blocks.3" in text
    assert "blocks.3" in figure.read_text()


def test_its_json_has_every_piece(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Programs get all pieces with their gaps in seconds."""
    assert 0 == cli.main(["explain", file, SPLIT, FUSED, "batch_size=1", "workload=net", "--json"])
    result = json.loads(capsys.readouterr().out)

    assert 13 == len(result["pieces"])
    assert result["gap_s"] == pytest.approx(sum(piece["gap_s"] for piece in result["pieces"]))


def test_an_ambiguous_trial_is_an_error(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The error lists the batch sizes to choose from."""
    assert 2 == cli.main(["explain", file, FUSED, SPLIT])
    assert "Select it: batch_size=1; batch_size=8" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("label", "reason"),
    [
        ("resnet18", "got 'resnet18'; expected NAME=VALUE, such as workload=resnet18"),
        ("first=openvino", "invalid label: got 'first=openvino'"),
        ("batch_size=1.2.3", "unknown batch size '1.2.3'. Expected one of 1, 8"),
        ("depth=2", "depth"),
        ("batch_size=2", "unknown batch size '2'. Expected one of 1, 8"),
    ],
)
def test_an_invalid_label_is_an_error(file: str, capsys: pytest.CaptureFixture[str], label: str, reason: str) -> None:
    """The error names the label that no trial has."""
    assert 2 == cli.main(["explain", file, FUSED, SPLIT, label])
    assert reason in capsys.readouterr().err
