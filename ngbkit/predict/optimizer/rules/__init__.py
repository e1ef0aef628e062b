"""The rules that rewrite graphs, by name."""

from __future__ import annotations

from ngbkit.errors import UnknownNameError
from ngbkit.predict.optimizer.rules import convolution, fusions, products, transposes
from ngbkit.predict.optimizer.rules.base import Rule, Site

__all__ = ["RULES", "Rule", "Site", "rule"]

# onnxscript.rewriter has rules for some of the same sites. Ours fold weights in float64, fuse no operator that the
# opset lacks, leave no Identity behind, and find the sites of a layer norm a hundred times as fast.
_MODULES = (convolution, products, fusions, transposes)

RULES: dict[str, Rule] = {rule_.name: rule_ for module in _MODULES for rule_ in module.RULES}


def rule(name: str) -> Rule:
    """The rule of that name.

    Raises
    ------
    UnknownNameError
        There is no such rule.
    """
    if name not in RULES:
        raise UnknownNameError("rule", name, RULES)
    return RULES[name]
