"""Errors report the value received, the valid values and the next step."""

from __future__ import annotations

import ast
import pickle
from pathlib import Path

import pytest

from ngbkit import errors
from ngbkit.commands.command import load_commands, load_magics
from ngbkit.errors import (
    MissingDependencyError,
    NgbkitError,
    NgbkitWarning,
    UnknownNameError,
    UsageError,
    WorkloadError,
    clip,
    find_nearest,
    translate_commands,
)


def test_an_unknown_name_offers_the_nearest() -> None:
    """The error of a misspelt name suggests the similar ones, and the next step."""
    error = UnknownNameError("compiler", "openvno", ["openvino", "onnxruntime", "tvm"], "See there.")

    assert "unknown compiler 'openvno'. Did you mean openvino? See there." == str(error)
    assert isinstance(error, UsageError)


@pytest.mark.parametrize(
    ("choices", "text"),
    [
        (["alpha", "beta"], "unknown device 'zzz'. Expected one of alpha, beta."),
        (["alpha"], "unknown device 'zzz'. Expected alpha."),
        ([], "unknown device 'zzz'. No device is available."),
        ([f"n{index}" for index in range(40)], "unknown device 'zzz'. None of the 40 valid names is similar."),
    ],
)
def test_without_a_similar_name_the_error_lists_a_few_choices(choices: list[str], text: str) -> None:
    """Few names are listed; many are counted."""
    assert text == str(UnknownNameError("device", "zzz", choices))


def test_the_nearest_name_ignores_case() -> None:
    """The most similar name is the first."""
    assert "resnet18" == find_nearest("ResNet18", ["resnet34", "resnet18", "vit"])[0]


@pytest.mark.parametrize(
    ("command", "magic", "python"),
    [
        ("ngbkit runs", "%ngruns", "ngbkit.runs.summaries()"),
        ("ngbkit runs --failures 2030", "%ngruns --failures 2030", "!ngbkit runs --failures 2030"),
        ("ngbkit runs --resume 2030", "%ngruns --resume 2030", "ngbkit.resume('2030')"),
        (
            "ngbkit runs --resume 2030 --retry inconclusive",
            "%ngruns --resume 2030 --retry inconclusive",
            "!ngbkit runs --resume 2030 --retry inconclusive",
        ),
        ("ngbkit compare a b", "%ngcompare a b", "ngbkit.load(a).ngb.compare(ngbkit.load(b))"),
        ("ngbkit run", "%ngbench", "ngbkit.Sweep(…).run()"),
        ("ngbkit devices init", "%ngdevices init", "!ngbkit devices init"),
        ("ngbkit deploy orin", "!ngbkit deploy orin", "!ngbkit deploy orin"),
    ],
)
def test_a_proposal_is_written_as_its_reader_types_it(command: str, magic: str, python: str) -> None:
    """A command in backticks is a magic, a call, or a command that a notebook runs in a shell; words are left alone."""
    text = f"Use `{command}`, since ngbkit runs it."

    assert f"Use `{magic}`, since ngbkit runs it." == translate_commands(text, "magic")
    assert f"Use `{python}`, since ngbkit runs it." == translate_commands(text, "python")
    assert translate_commands(text, "magic") == translate_commands(translate_commands(text, "magic"), "magic")


def test_every_magic_that_is_proposed_exists() -> None:
    """Every magic that an error proposes is registered."""
    proposals = [command.typed_in_magic for command in load_commands().values() if command.typed_in_magic]

    assert len(proposals) > 5
    assert {line.split()[0] for line in proposals} <= {f"%{name}" for name in load_magics()}


def test_ipython_shows_an_error_in_the_words_of_python() -> None:
    """IPython shows the call of Python in place of the shell's command in an error."""
    error = UsageError("missing. `ngbkit runs` lists all runs.")

    assert "missing. `ngbkit runs` lists all runs." == str(error)
    assert ["UsageError: missing. `ngbkit.runs.summaries()` lists all runs."] == error._render_traceback_()


def test_a_warning_is_shown_in_the_words_of_its_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    """A warning proposes Python in a notebook and the shell's command elsewhere."""
    warning = NgbkitWarning("a run is left out. `ngbkit runs --resume 2030` measures it.")

    monkeypatch.setattr("IPython.get_ipython", lambda: None)
    assert "a run is left out. `ngbkit runs --resume 2030` measures it." == str(warning)
    monkeypatch.setattr("IPython.get_ipython", object)
    assert "a run is left out. `ngbkit.resume('2030')` measures it." == str(warning)


def test_every_warning_of_ngbkit_is_one() -> None:
    """Every call of `warnings.warn` in the package issues an NgbkitWarning."""
    package = Path(errors.__file__).parent
    calls = [
        (file.name, ast.unparse(node))
        for file in package.rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "warnings.warn"
    ]

    assert len(calls) > 3
    assert [] == [call for call in calls if "NgbkitWarning" not in call[1]]


@pytest.mark.parametrize(
    "text",
    [5000 * "n", 2500 * "n ", 2500 * "é'", 2500 * '" \\', "/".join(500 * ["folder"]), "\n".join(99 * ["n" * 900])],
)
def test_a_name_that_is_too_long_is_clipped(text: str) -> None:
    """Both its ends are in the message, and so is what follows it."""
    message = str(UnknownNameError("device", f"first{text}last", ["cpu"], "See there."))

    assert message.startswith("unknown device ")
    assert message.endswith("last'. Expected cpu. See there.") or message.endswith('last". Expected cpu. See there.')
    assert "first" in message
    assert len(message) < 300
    assert message == clip(message)


def test_a_sentence_is_not_clipped() -> None:
    """A sentence with apostrophes and quotations is not clipped."""
    sentence = f"timm's network 'a/' or \"b/\" {'word ' * 99}of the device's, '/c' or \"/d\"."

    assert sentence == str(UsageError(sentence))


def test_a_missing_dependency_names_the_command() -> None:
    """The error contains the command to copy."""
    error = MissingDependencyError("xarray", "notebook")

    assert "xarray is not installed. Install it with: pip install 'ngbkit[notebook]'" == str(error)
    assert isinstance(error, ImportError)


def test_every_error_has_one_root_and_is_drawn_in_the_tree() -> None:
    """`except NgbkitError` catches every error that is raised on purpose, and the module's docstring draws each."""
    classes = [value for value in vars(errors).values() if isinstance(value, type) and issubclass(value, Exception)]

    assert all(issubclass(error, NgbkitError | NgbkitWarning) for error in classes)
    assert [] == [error.__name__ for error in classes if error.__name__ not in (errors.__doc__ or "")]


@pytest.mark.parametrize(
    "error",
    [UnknownNameError("device", "x", ["y"], "h"), MissingDependencyError("a", "b"), WorkloadError("m", "tb")],
)
def test_errors_survive_a_copy_into_another_process(error: Exception) -> None:
    """Pools and futures pickle the errors that they pass on."""
    copied = pickle.loads(pickle.dumps(error))

    assert (type(error), str(error), vars(error)) == (type(copied), str(copied), vars(copied))
