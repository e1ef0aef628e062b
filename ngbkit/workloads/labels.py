"""Labels with arguments, as of workloads and compilers: ``resnet18{"img_size":160}``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ngbkit.errors import UsageError, WorkloadError
from ngbkit.user_text import parse_json


def separate(text: str) -> tuple[str, str]:
    """Separate the name of a label from its braces, which are empty if it has none."""
    name, brace, rest = text.partition("{")
    return name, brace + rest


def split(text: str) -> tuple[str, dict[str, Any]]:
    """Split a label into its name and its arguments, a JSON object."""
    name, braces = separate(text.strip())
    try:
        return name.strip(), parse_json(braces or "{}")
    except UsageError as error:
        raise WorkloadError(
            f'invalid arguments in {text!r}: expected JSON, such as {name}{{"argument":value}} ({error}).'
        ) from None


def join(name: str, arguments: Mapping[str, Any]) -> str:
    """Join a name and its arguments to a label, the same in any order of the arguments."""
    if not arguments:
        return name
    try:
        return name + json.dumps(dict(arguments), sort_keys=True, separators=(",", ":"))
    except TypeError as error:
        raise WorkloadError(
            f"invalid arguments of {name}: expected numbers, strings, and lists or dicts of these ({error}). For other "
            "arguments, build the network in a cell or with ngbkit.from_module."
        ) from None
