"""All rules, by name."""

from __future__ import annotations

from ngbkit.errors import UnknownNameError
from ngbkit.optimizer.rules import batchnorm, fusions, groups, parallel, pooling, products, transposes, windows
from ngbkit.optimizer.rules.base import Rule, Site

__all__ = ["RULES", "Rule", "Site", "rule"]

_ROOMS = (batchnorm, parallel, windows, groups, pooling, products, fusions, transposes)

RULES: dict[str, Rule] = {one.name: one for room in _ROOMS for one in room.RULES}


def rule(name: str) -> Rule:
    """The rule of that name.

    Raises
    ------
    UnknownNameError
        There is none.
    """
    if name not in RULES:
        raise UnknownNameError("rule", name, RULES)
    return RULES[name]
