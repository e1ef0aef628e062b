"""Errors report the value received, the valid values and the next step."""

from __future__ import annotations

import pickle

import pytest

from ngbkit import errors
from ngbkit.errors import MissingDependencyError, NgbkitError, UnknownNameError, UsageError, WorkloadError, find_nearest


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


def test_a_missing_dependency_names_the_command() -> None:
    """The error contains the command to copy."""
    error = MissingDependencyError("xarray", "notebook")

    assert "xarray is not installed. Install it with: pip install 'ngbkit[notebook]'" == str(error)
    assert isinstance(error, ImportError)


def test_every_error_has_one_root_and_is_drawn_in_the_tree() -> None:
    """`except NgbkitError` catches every error that is raised on purpose, and the module's docstring draws each."""
    classes = [value for value in vars(errors).values() if isinstance(value, type) and issubclass(value, Exception)]

    assert all(issubclass(error, NgbkitError) for error in classes)
    assert [] == [error.__name__ for error in classes if error.__name__ not in (errors.__doc__ or "")]


@pytest.mark.parametrize(
    "error",
    [UnknownNameError("device", "x", ["y"], "h"), MissingDependencyError("a", "b"), WorkloadError("m", "tb")],
)
def test_errors_survive_a_copy_into_another_process(error: Exception) -> None:
    """Pools and futures pickle the errors that they pass on."""
    copied = pickle.loads(pickle.dumps(error))

    assert (type(error), str(error), vars(error)) == (type(copied), str(copied), vars(copied))
