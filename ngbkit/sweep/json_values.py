"""Values as JSON has them: no NaN, no infinity, no tuple, nothing of NumPy."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any


def to_json_value(value: Any) -> Any:
    """A number, a text, a list or an object, with None for numbers that JSON lacks; records convert themselves."""
    if isinstance(value, Mapping):
        return {str(name): to_json_value(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_json_value(item) for item in value]
    if hasattr(value, "to_json"):
        return value.to_json()
    value = value.item() if hasattr(value, "item") else value
    return None if isinstance(value, float) and not math.isfinite(value) else value
