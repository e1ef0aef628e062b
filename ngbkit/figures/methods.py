"""Functions of a dataset as methods of its accessor, with their signatures and docstrings."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

_Result = TypeVar("_Result")


def to_method(function: Callable[..., _Result], attribute: str) -> Callable[..., _Result]:
    """Convert a function of a dataset to a method of an object that has the dataset as an attribute."""

    @wraps(function)
    def method(self: Any, /, *arguments: Any, **options: Any) -> _Result:
        return function(getattr(self, attribute), *arguments, **options)

    dataset, *others = inspect.signature(function).parameters.values()
    method.__signature__ = inspect.Signature(  # type: ignore[attr-defined]  # inspect reads it
        [dataset.replace(name="self", annotation=inspect.Parameter.empty), *others],
        return_annotation=inspect.signature(function).return_annotation,
    )
    return method
