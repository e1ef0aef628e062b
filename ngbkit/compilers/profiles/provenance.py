"""Provenance: which source nodes each executed kernel computes.

Kernels claim nodes by names that survive: names of nodes, of fusions and of values. A kernel that only moves values
cannot compute a node that does more, so such a claim belongs to the kernel before it. What no name claims is placed by
data flow, between the claims that bound it:

- a kernel without a claim computes the unclaimed nodes between those of the kernels around it, or a part of the node
  that follows (a normalisation in several steps);
- a node without a claim was fused into the kernel of its producers or of its consumers, whichever reads all that the
  node reads.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from ngbkit.compilers.profiles.profile import Kernel, SourceNode


@dataclass(frozen=True, slots=True, kw_only=True)
class Executed:
    """A kernel in topological order, with the indices of the kernels that it reads and of the nodes that it claims.

    `moves`: it only moves or converts values. `operator`: the operator of the first node that it computes, which it
    fuses with what follows; empty if it may begin with any.
    """

    name: str
    kind: str
    inputs: tuple[int, ...] = ()
    claims: tuple[int, ...] = ()
    moves: bool = False
    operator: str = ""


def map_kernels(nodes: Sequence[SourceNode], executed: Sequence[Executed]) -> list[Kernel]:
    """Map each executed kernel to source nodes; both are in topological order."""
    mapping = _Mapping(nodes, executed)
    mapping.claim()
    mapping.place_kernels()
    mapping.place_nodes()
    return [
        Kernel(
            name=kernel.name,
            kind=kernel.kind,
            nodes=tuple(sorted(mapping.claims[index])),
            role="compute" if mapping.claims[index] else "copy" if kernel.moves else "unmapped",
        )
        for index, kernel in enumerate(executed)
    ]


@dataclass(slots=True)
class _Mapping:
    nodes: Sequence[SourceNode]
    executed: Sequence[Executed]
    # The nodes of each kernel, and the kernels of each node.
    claims: list[set[int]] = field(default_factory=list)
    owners: dict[int, set[int]] = field(default_factory=dict)
    # The kernels that read each kernel, and the nodes that read each node.
    readers: list[list[int]] = field(default_factory=list)
    consumers: list[list[int]] = field(default_factory=list)
    # The nodes before and after each node, as sets of bits.
    before: list[int] = field(default_factory=list)
    after: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.claims = [set() for _ in self.executed]
        self.readers = _invert([kernel.inputs for kernel in self.executed])
        self.consumers = _invert([node.inputs for node in self.nodes])
        for index, node in enumerate(self.nodes):
            self.before.append(_join(self.before[each] | 1 << each for each in node.inputs if each < index))
        self.after = [0] * len(self.nodes)
        for index in reversed(range(len(self.nodes))):
            self.after[index] = _join(self.after[each] | 1 << each for each in self.consumers[index] if each > index)

    def claim(self) -> None:
        """Let kernels claim nodes by name; claims of kernels that only move values go to those that compute them."""
        for index, kernel in enumerate(self.executed):
            for node in kernel.claims:
                owner = index
                while self.executed[owner].moves and not self.nodes[node].moves and self.executed[owner].inputs:
                    owner = self.executed[owner].inputs[0]
                if not self.executed[owner].moves or self.nodes[node].moves:
                    self._add(owner, node)

    def place_kernels(self) -> None:
        """Place the kernels without a claim: the unclaimed nodes between their neighbours, or a part of the next."""
        for index in [index for index, nodes in enumerate(self.claims) if not nodes]:
            earlier = set(self._walk(index, [each.inputs for each in self.executed]))
            later = set(self._walk(index, self.readers))
            for node in self._choose(self.executed[index], earlier, later, index):
                self._add(index, node)

    def _choose(self, kernel: Executed, earlier: set[int], later: set[int], index: int) -> list[int]:
        """Choose the nodes of a kernel without a claim, between nodes before and after it."""
        region = self._list_between(earlier, later)
        if kernel.moves:
            return [node for node in region if self.nodes[node].moves]
        if region:
            return region
        computing = set(self._walk(index, self.readers, is_computing=True))
        region = [node for node in self._list_between(earlier, computing) if not self.nodes[node].moves]
        # Another kernel may compute a part of the same node.
        region = region or sorted(earlier & computing)
        region = region or [node for node in sorted(computing) if earlier & set(self._list_effective_inputs(node))]
        return region or [node for node in sorted(computing) if not self.nodes[node].inputs and not earlier]

    def place_nodes(self) -> None:
        """Place the nodes without a claim in the kernel that fused them."""
        for node in reversed(range(len(self.nodes))):
            if node not in self.owners and (consumer := self._find_consumer(node)) is not None:
                self._add(consumer, node)
        for node in range(len(self.nodes)):
            if node not in self.owners and (owner := self._find_any(node)) is not None:
                self._add(owner, node)

    def _find_consumer(self, node: int) -> int | None:
        """Find the kernel of a node's consumers if it reads all that the node reads, and fused it."""
        producer = self._find_producer(node)
        for owner in sorted({owner for each in self.consumers[node] for owner in self.owners.get(each, ())}):
            kernel = self.executed[owner]
            if self._begins(owner) or (kernel.moves and not self.nodes[node].moves) or not self._reads(owner, node):
                continue
            if producer is None or not kernel.moves:
                return owner
        return None

    def _begins(self, owner: int) -> bool:
        """Return whether a kernel has the node that it begins with, so that it computes none before it."""
        operator = self.executed[owner].operator
        return any(self.nodes[node].operator.partition(" ")[0] == operator for node in self.claims[owner])

    def _find_producer(self, node: int) -> int | None:
        """Find the last kernel of a node's producers, if it reads all else that the node reads."""
        inputs = self.nodes[node].inputs
        if not inputs or any(each not in self.owners for each in inputs):
            return None
        owner = max(max(self.owners[each]) for each in inputs)
        if self.executed[owner].moves and not self.nodes[node].moves:
            return None
        return owner if self._reads(owner, node) else None

    def _find_any(self, node: int) -> int | None:
        """Find the kernel of a node's producers, or else the first of its consumers' that may compute it."""
        owner = self._find_producer(node)
        if owner is not None:
            return owner
        candidates = {owner for each in self.consumers[node] for owner in self.owners.get(each, ())}
        candidates |= {owner for each in self.nodes[node].inputs for owner in self.owners.get(each, ())}
        able = [each for each in sorted(candidates) if self.nodes[node].moves or not self.executed[each].moves]
        return able[0] if able else None

    def _reads(self, owner: int, node: int) -> bool:
        """Return whether a kernel computes or reads all that a node reads, as far as that is in a kernel."""
        sources = self._list_sources(owner)
        return all(
            not (self.owners.get(each, set()) - {owner}) or self.owners[each] & (sources | {owner})
            for each in self.nodes[node].inputs
        )

    def _list_sources(self, owner: int) -> set[int]:
        """List the kernels whose values a kernel reads, copies looked through."""
        sources: set[int] = set()
        queue = list(self.executed[owner].inputs)
        while queue:
            index = queue.pop()
            if index not in sources:
                sources.add(index)
                if self.executed[index].moves:
                    queue += self.executed[index].inputs
        return sources

    def _list_effective_inputs(self, node: int) -> Iterator[int]:
        """List the nodes that a node reads, those that only move values looked through as well."""
        queue = list(self.nodes[node].inputs)
        while queue:
            index = queue.pop()
            yield index
            if self.nodes[index].moves:
                queue += self.nodes[index].inputs

    def _walk(self, start: int, edges: Sequence[Sequence[int]], *, is_computing: bool = False) -> Iterator[int]:
        """Yield the nodes of the nearest kernels with claims in one direction, or of those that compute something."""
        queue, visited = list(edges[start]), set[int]()
        while queue:
            index = queue.pop()
            if index in visited:
                continue
            visited.add(index)
            if self.claims[index] and not (is_computing and self.executed[index].moves):
                yield from self.claims[index]
            else:
                queue += edges[index]

    def _list_between(self, earlier: Iterable[int], later: Iterable[int]) -> list[int]:
        """List the unclaimed nodes after some nodes, or after the inputs of the network, and before others."""
        start, end = set(earlier), set(later)
        reach = _join(self.after[each] for each in start) if start else -1
        limit = _join(self.before[each] for each in end) if end else -1
        # What is between two nodes of the same side belongs to their own kernel.
        bits = reach & limit & ~_join(self.before[each] for each in start) & ~_join(self.after[each] for each in end)
        if bits < 0:
            return []
        return [
            node for node in range(len(self.nodes)) if bits >> node & 1 and node not in self.owners and node not in end
        ]

    def _add(self, owner: int, node: int) -> None:
        self.claims[owner].add(node)
        self.owners.setdefault(node, set()).add(owner)


def _invert(edges: Sequence[Sequence[int]]) -> list[list[int]]:
    inverse: list[list[int]] = [[] for _ in edges]
    for index, sources in enumerate(edges):
        for source in sources:
            inverse[source].append(index)
    return inverse


def _join(bits: Iterable[int]) -> int:
    total = 0
    for each in bits:
        total |= each
    return total
