"""Rules of `onnxscript.rewriter` as rules of ngbkit: each of their matches is a site, rewritten alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import onnx_ir as ir

from ngbkit.predict.optimizer.editing import Edit, name_nodes
from ngbkit.predict.optimizer.rules.base import Rule

if TYPE_CHECKING:
    from onnxscript.rewriter import RewriteRule, RewriteRuleSet


def adapt(rules: RewriteRule | RewriteRuleSet, name: str) -> Rule:
    """Adapt a rule, or a set of rules that are alternatives of one another, under a name of ngbkit."""
    from onnxscript.rewriter import RewriteRule

    alternatives = [rules] if isinstance(rules, RewriteRule) else list(rules)
    adapter = _Adapter(rules=alternatives)
    summary = f"onnxscript.rewriter: {', '.join(dict.fromkeys(map(str, alternatives)))}"
    return Rule(name=name, summary=summary, find=adapter.find, rewrite=adapter.rewrite)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Adapter:
    rules: Sequence[RewriteRule]

    def find(self, graph: ir.Graph) -> Iterator[Sequence[ir.Node]]:
        """Yield the nodes of each match, the one that the rule is matched at first."""
        from onnxscript.optimizer import basic_constant_propagation

        basic_constant_propagation(graph)
        for _, nodes in _match(self.rules, _wrap(graph)):
            yield nodes

    def rewrite(self, edit: Edit, nodes: Sequence[ir.Node]) -> None:
        """Let the rule that matches exactly these nodes rewrite them, and no others."""
        from onnxscript.rewriter import RewriteRuleSet

        rule = next((rule for rule, matched in _match(self.rules, edit.model) if matched == list(nodes)), None)
        if rule is None:
            raise LookupError(f"no match at {nodes[0].name} any more")
        # The set does more than the rule: opset imports, initialisers, functions, names.
        RewriteRuleSet([_AtNode(rule, nodes[0])]).apply_to_model(edit.model)
        name_nodes(edit.graph)


class _AtNode:
    """A rule that sees one node of the graph only."""

    def __init__(self, rule: RewriteRule, node: ir.Node) -> None:
        self._rule, self._node = rule, node

    def __getattr__(self, name: str) -> Any:
        return getattr(self._rule, name)

    def try_rewrite(self, model: ir.Model, graph: Any, node: ir.Node, **settings: Any) -> Any:
        """Rewrite, if this is the node."""
        return self._rule.try_rewrite(model, graph, node, **settings) if node is self._node else None


def _match(rules: Sequence[RewriteRule], model: ir.Model) -> Iterator[tuple[RewriteRule, list[ir.Node]]]:
    """Yield each rule and the nodes of each of its matches in the graph."""
    for rule in rules:
        if rule.graph_pre_visitor:
            rule.graph_pre_visitor()
        for node in list(model.graph):
            match = rule.match(model, model.graph, node, check_nodes_are_removable=rule.remove_nodes)
            if match:
                yield rule, [node, *(other for other in match.nodes if other is not node)]
        if rule.graph_post_visitor:
            rule.graph_post_visitor()


def _wrap(graph: ir.Graph) -> ir.Model:
    """Wrap a graph as the model that a rule expects; its functions are inlined before any search."""
    return ir.Model(graph, ir_version=10)
