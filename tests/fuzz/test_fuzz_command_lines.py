"""A short run of the fuzzer of command lines; ``tests/fuzz/run.py command_lines`` is a long one."""

from __future__ import annotations

import fuzz_command_lines
import pytest

from ngbkit import cli


@pytest.mark.filterwarnings("ignore:IPython parent")  # the folder of a home that nobody may write to
def test_any_command_line_ends_with_an_exit_code() -> None:
    """Any command line ends with an exit code, not a traceback."""
    fuzz_command_lines.run(cases=100, seed=0)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["run", "~nouser/x.onnx"], "invalid path: got '~nouser/x.onnx', and there is no such home folder"),
        (["run", "deep.py"], "too many nested parentheses"),
        (["run", "unary.py"], "invalid syntax in unary.py: it nests too deeply"),
        (["run", "x\0.py"], "with a zero byte"),
        (["run", "a" * 300 + ".onnx"], "with a name of 305 bytes; expected at most 255"),
        (["run", 'resnet18{"img_size":' + "9" * 5000 + "}"], "a number has too many digits"),
        (["run", "mlp.onnx", "-c", 'onnxruntime{"a":' + "[" * 20000], "nests too deeply"),
        (["show", "9" * 400], "expected at most 255"),
        (["publish", "~nouser/page.ipynb"], "no such home folder"),
        (["publish", "deep.ipynb"], "deep.ipynb cannot be read as a notebook: it nests too deeply"),
        (["optimize", "mlp.onnx", "-o", ""], "invalid path: got an empty one"),
        (["run", "mlp.onnx", "--cluster", "deep.py"], "invalid connection file deep.py: Expecting value"),
        (["run", "mlp.onnx", "--cluster", "brackets.json"], "brackets.json: it lacks interface, key"),
    ],
)
def test_hostile_words_are_told_in_a_sentence(words: list[str], message: str) -> None:
    """The error of hostile words has the received value and the valid ones."""
    code, text = fuzz_command_lines.main(words)

    assert cli.INVALID == code
    assert message in text
    assert len(text) < 60_000


def test_a_state_folder_that_is_a_file_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every command that needs the state folder refuses a file in its place."""
    with fuzz_command_lines.isolate():
        monkeypatch.setenv("NGBKIT_STATE_DIR", "empty.py")
        codes = [cli.main(words) for words in (["runs"], ["cache"], ["run", "mlp.onnx"], ["runs", "--resume", "2099"])]

    assert [cli.INVALID] * 4 == codes
