"""Any JSON, with what is easily forgotten: NaN, huge integers, half of a surrogate pair, escape sequences, nesting."""

from __future__ import annotations

import json
from copy import deepcopy
from typing import Any

from hypothesis import strategies as st

HOSTILE_TEXTS = ("", "nan", "\x1b[2J\x1b]0;owned\x07", "half \ud800 pair", "two\nlines", "\x00", "\u202e", "x" * 5000)
HOSTILE_NUMBERS = (0, -1, 1e300, -1e-300, float("nan"), float("inf"), 10**400, 2**63, -(2**63) - 1, 1.5, True)
NESTED = json.loads("[" * 300 + "]" * 300)

TEXTS = st.sampled_from(HOSTILE_TEXTS) | st.text(st.characters(), max_size=30)
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.sampled_from(HOSTILE_NUMBERS) | TEXTS
VALUES = (
    st.recursive(
        SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4), max_leaves=8
    )
    | st.just(NESTED)
    | st.just([])
    | st.just({})
)


def list_paths(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """List the path to every value inside a JSON value; to the first three of a long list, and no deeper than six."""
    if len(path) >= 6:
        return [path]
    items = value.items() if isinstance(value, dict) else enumerate(value[:3]) if isinstance(value, list) else ()
    return [*([path] if path else []), *(inner for key, item in items for inner in list_paths(item, (*path, key)))]


@st.composite
def mutations(draw: st.DrawFn, values: list[Any]) -> Any:
    """One of the values, of which one to three parts are replaced, removed or added."""
    copy = json.loads(json.dumps(draw(st.sampled_from(values))))
    for _ in range(draw(st.integers(1, 3))):
        paths = list_paths(copy)
        if not paths:
            return copy
        *parents, key = draw(st.sampled_from(paths))
        holder = copy
        for parent in parents:
            holder = holder[parent]
        change = draw(st.sampled_from(("replace", "replace", "replace", "remove", "add")))
        if change == "remove":
            del holder[key]
        elif change == "add" and isinstance(holder, dict):
            holder[draw(TEXTS)] = deepcopy(draw(VALUES))
        else:
            holder[key] = deepcopy(draw(VALUES))
    return copy
