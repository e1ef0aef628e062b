"""`ngbkit optimize`: what leads the search, and what is told of it."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import pytest
from learned import build_examples
from onnxgraphs import Builder, build_branches, write

from ngbkit import cli, predict, set_options
from ngbkit.commands.parser import build_parser, parse
from ngbkit.commands.shell import ShellCall
from ngbkit.errors import UnknownNameError, UsageError
from ngbkit.predict import read
from ngbkit.predict.commands import optimize
from ngbkit.predict.commands.optimize import COMMAND
from ngbkit.predict.optimizer import costs, optimise
from ngbkit.predict.optimizer.beam_search import USUAL


@pytest.fixture
def branches(tmp_path: Path) -> Path:
    return write(build_branches(2, 16, 24).model(), tmp_path / "branches.onnx")


def asked(*words: str) -> argparse.Namespace:
    return parse(build_parser("ngbkit optimize", COMMAND.shell_arguments), words)


def test_the_verb_writes_what_it_keeps(
    branches: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command prints one row per candidate and writes an ONNX graph."""
    monkeypatch.setattr(optimise, "choose", lambda outcomes: 0 if outcomes else None)
    out = tmp_path / "out.onnx"
    words = ["optimize", str(branches), "--cost", "flops", "-r", "6", "-o", str(out)]

    assert 0 == cli.main([*words, "--rules", "sum-branches", "--quiet", "--json"])
    report = json.loads(capsys.readouterr().out)

    assert ("branches", "onnxruntime", 0) == (report["network"], report["compiler"], report["chosen"])
    assert ["sum-branches"] * 2 == [name for name, _ in report["tried"][0]["steps"]]
    assert ["Conv", "Relu"] * 2 == [node.kind for node in read(out).operators]
    assert 0 == cli.main([*words, "--rules", "conv-to-matmul", "--quiet"])
    assert "the original stays" in capsys.readouterr().out


def test_a_saved_predictor_is_a_cost_model(tmp_path: Path) -> None:
    """The file of a predictor is a cost model; of another device it is refused, also of a device in the options."""
    examples = build_examples(tmp_path)
    words = ["resnet18", "--cost", str(predict.fit(examples, "linear").save(tmp_path / "p.safetensors"))]

    assert optimize.find_cost(asked(*words))(examples.graphs[:1]) > 0
    with pytest.raises(UnknownNameError, match="orin"):
        optimize.find_cost(asked(*words, "-d", "orin"))
    with set_options(device="orin"), pytest.raises(UnknownNameError, match="orin"):
        optimize.find_cost(asked(*words))


@pytest.mark.parametrize(
    ("words", "error", "message"),
    [
        (["--cost", "gnn"], UsageError, "which is no file; expected flops"),
        (["-c", "onnxrun"], UnknownNameError, "onnxruntime"),
        (["-c", "onnxruntime,openvino"], UsageError, "invalid compilers: got 'onnxruntime,openvino'; expected one"),
        (["--rules", "merge-conv"], UnknownNameError, "merge-convs"),
    ],
)
def test_words_that_do_not_fit_are_errors(words: list[str], error: type[Exception], message: str) -> None:
    """Conflicting arguments are errors before anything is built."""
    with pytest.raises(error, match=message):
        optimize.answer_optimize(ShellCall(asked("resnet18", *words)))


def test_an_open_dimension_has_its_value_from_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The user sets an open dimension by the flag that the error names."""
    build = Builder(8, 16)
    model = build.model(build.add("Relu", build.conv("x", 8)))
    model.graph.input[0].type.tensor_type.shape.dim[2].dim_param = "height"
    words = ["optimize", str(write(model, tmp_path / "tall.onnx")), "--rules", "fold-batchnorm", "--quiet", "--json"]

    assert 2 == cli.main(words)
    assert "Add --factor height=…" in capsys.readouterr().err
    assert 0 == cli.main([*words, "--factor", "height=24"])
    assert {"height": 24} == json.loads(capsys.readouterr().out)["factors"]


def test_flops_need_nothing() -> None:
    """The default cost model is FLOPs, which needs no labels."""
    assert costs.operations is optimize.find_cost(asked("resnet18"))


def test_the_words_say_what_the_code_does() -> None:
    """Defaults and names stand in the help, which imports none of it."""
    report = {argument.flags[-1]: argument for argument in COMMAND.arguments}

    assert USUAL.seconds == report["--seconds"].settings["default"]
