"""Errors say what came, what is valid and what to do next."""

from __future__ import annotations

import pickle

import pytest

from ngbkit import errors
from ngbkit.errors import MissingDependencyError, NgbkitError, UnknownNameError, UsageError, WorkloadError, nearest


def test_an_unknown_name_offers_the_nearest() -> None:
    """A typing mistake is answered with the name that was meant."""
    error = UnknownNameError("compiler", "openvno", ["openvino", "onnxruntime", "tvm"], "See there.")

    assert "unknown compiler 'openvno'. Did you mean openvino? See there." == str(error)
    assert isinstance(error, UsageError)


@pytest.mark.parametrize(
    ("known", "text"),
    [
        (["alpha", "beta"], "unknown device 'zzz'. Valid: alpha, beta."),
        ([], "unknown device 'zzz'. There is no device at all."),
        ([f"n{index}" for index in range(40)], "unknown device 'zzz'. There are 40, none of a similar name."),
    ],
)
def test_without_a_near_name_the_valid_ones_are_listed_as_far_as_that_helps(known: list[str], text: str) -> None:
    """A few names are listed; many are counted."""
    assert text == str(UnknownNameError("device", "zzz", known))


def test_nearest_does_not_mind_case_and_offers_the_best_first() -> None:
    """The order is that of likeness."""
    assert "resnet18" == nearest("ResNet18", ["resnet34", "resnet18", "vit"])[0]


def test_a_missing_dependency_names_the_command() -> None:
    """Whoever meets it can copy the way out."""
    error = MissingDependencyError("xarray", "notebook")

    assert "xarray is not installed. Install it with: pip install 'ngbkit[notebook]'" == str(error)
    assert isinstance(error, ImportError)


def test_every_error_has_one_root_and_stands_in_the_drawn_tree() -> None:
    """`except NgbkitError` catches all that is raised on purpose, and the docstring draws each."""
    found = [one for one in vars(errors).values() if isinstance(one, type) and issubclass(one, Exception)]

    assert all(issubclass(one, NgbkitError) for one in found)
    assert [] == [one.__name__ for one in found if one.__name__ not in (errors.__doc__ or "")]


@pytest.mark.parametrize(
    "error",
    [UnknownNameError("device", "x", ["y"], "h"), MissingDependencyError("a", "b"), WorkloadError("m", "tb")],
)
def test_errors_survive_a_copy_into_another_process(error: Exception) -> None:
    """Pools and futures hand errors on by pickling them."""
    copied = pickle.loads(pickle.dumps(error))

    assert (type(error), str(error), vars(error)) == (type(copied), str(copied), vars(copied))
