"""A rule: where a graph can be rewritten, and how, such that it computes the same."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import onnx_ir as ir

from ngbkit.optimizer.editing import Edit

Site = tuple[str, ...]
"""The names of the nodes that a rule is applied to."""

Find = Callable[[ir.Graph], Iterator[Sequence[ir.Node]]]
Rewrite = Callable[[Edit, Sequence[ir.Node]], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A rewriting that changes what is executed and not what is computed.

    Parameters
    ----------
    name, summary
        What it is called, and one line on what it does.
    find
        Gives the nodes of each place where it fits.
    rewrite
        Rewrites one such place.
    inverse
        The name of the rule that undoes it; empty where there is none.
    """

    name: str
    summary: str
    find: Find
    rewrite: Rewrite
    inverse: str = ""

    def sites(self, model: ir.Model) -> list[Site]:
        """Where it fits."""
        return [tuple(str(node.name) for node in nodes) for nodes in self.find(model.graph)]

    def apply(self, model: ir.Model, site: Site) -> ir.Model:
        """The model, rewritten at one of `sites`; what came stays as it is.

        Raises
        ------
        KeyError
            The model has no node of one of these names.
        """
        changed = model.clone()
        named = {node.name: node for node in changed.graph}
        edit = Edit(changed)
        self.rewrite(edit, [named[name] for name in site])
        return edit.finish()
