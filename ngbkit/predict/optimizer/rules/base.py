"""The protocol of a rule: the sites where a graph can be rewritten, and an equivalent rewriting."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import onnx_ir as ir

from ngbkit.predict.optimizer.editing import Edit

Site = tuple[str, ...]
"""The names of the nodes that a rule rewrites."""

Find = Callable[[ir.Graph], Iterator[Sequence[ir.Node]]]
Rewrite = Callable[[Edit, Sequence[ir.Node]], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A rewriting that changes the operators of a graph and not its results.

    Parameters
    ----------
    name, summary
        The name, and one line on the effect.
    find
        Yields the nodes of each matching site.
    rewrite
        Rewrites one such site.
    """

    name: str
    summary: str
    find: Find
    rewrite: Rewrite

    def sites(self, model: ir.Model) -> list[Site]:
        """The matching sites."""
        return [tuple(str(node.name) for node in nodes) for nodes in self.find(model.graph)]

    def apply(self, model: ir.Model, site: Site) -> ir.Model:
        """A copy of the model, rewritten at one of `sites`.

        Raises
        ------
        KeyError
            The model has no node of one of these names.
        """
        return self.apply_all(model, [site])[0]

    def apply_all(self, model: ir.Model, sites: Iterable[Site]) -> tuple[ir.Model, list[Site]]:
        """A copy of the model, rewritten at those of its `sites` that share no node with an earlier one; these sites.

        Raises
        ------
        KeyError
            The model has no node of one of these names.
        """
        changed = model.clone()
        nodes_by_name = {node.name: node for node in changed.graph}
        edit, rewritten, touched = Edit(changed), list[Site](), set[str]()
        for site in sites:
            if touched.isdisjoint(site):
                self.rewrite(edit, [nodes_by_name[name] for name in site])
                touched.update(site)
                rewritten.append(site)
        return edit.finish(), rewritten
