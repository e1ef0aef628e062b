"""Labels that carry arguments, as compilers' do: ``resnet18{"img_size":160}``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ngbkit.errors import WorkloadError


def split(text: str) -> tuple[str, dict[str, Any]]:
    """The name and the arguments of a label.

    Raises
    ------
    WorkloadError
        What follows the name is not a JSON object.
    """
    name, brace, rest = text.strip().partition("{")
    if not brace:
        return name, {}
    try:
        arguments: dict[str, Any] = json.loads(brace + rest)
    except json.JSONDecodeError as error:
        raise WorkloadError(
            f'the arguments of {text!r} are not JSON: {error}. Write them as {name}{{"argument":value}}.'
        ) from None
    return name.strip(), arguments


def join(name: str, arguments: Mapping[str, Any]) -> str:
    """The label of a name with arguments, the same whatever their order.

    Raises
    ------
    WorkloadError
        An argument that JSON cannot hold.
    """
    if not arguments:
        return name
    try:
        return name + json.dumps(dict(arguments), sort_keys=True, separators=(",", ":"))
    except TypeError as error:
        raise WorkloadError(
            f"the arguments of {name} must be numbers, texts, lists or dicts of these: {error}. "
            "For anything else, build the network in a cell or with ngbkit.from_module."
        ) from None
