"""Cuts networks at the tensors that several runtimes keep: the pieces between two cuts are what all of them compute.

Nodes of the source network belong to one piece if any runtime computes them in one kernel.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from ngbkit.compilers.profiles.profile import Kernel, SourceNode
from ngbkit.errors import MetricError
from ngbkit.why.phrases import HEAVY, classify_operator, describe_operators
from ngbkit.why.trial_profile import COPY, TrialProfile, is_mapped

COPIES, REST, BETWEEN = "copies and layout changes", "kernels of unknown origin", "between kernels"
"""The pieces that no node of the network asks for."""

# The namespace of the operators of torch.
_ATEN = "aten::"


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """A part of a network that has a time of its own in every runtime.

    Parameters
    ----------
    name
        The module of its heaviest node, or that node's name; of a piece that is no part of the network, what it is.
    module
        The path of that module, empty where the source has none.
    family
        What it computes, in words, such as ``"depthwise convolutions with SiLU"``.
    nodes, operators
        The names of its nodes, and their operators, in topological order.
    kernels
        The indices of its kernels in each profile.
    """

    name: str
    module: str
    family: str
    nodes: tuple[str, ...]
    operators: tuple[str, ...]
    kernels: tuple[tuple[int, ...], ...]

    @property
    def is_network(self) -> bool:
        """Return whether it is a part of the network."""
        return bool(self.operators)


def cut(profiles: Sequence[TrialProfile]) -> list[Piece]:
    """Cut networks into the pieces that all profiles share, in topological order, followed by what is no part of them.

    MetricError: two profiles have no node in common.
    """
    keys = _identify(profiles)
    for others in keys[1:]:
        if not set(keys[0]) & set(others):
            raise MetricError(
                "invalid pair: got profiles of two networks without a common node or module; expected two columns of "
                "one network, or two versions of it. Select others."
            )
    order = _merge_orders(keys)
    roots = {key: key for key in order}

    def find_root(key: str) -> str:
        while roots[key] != key:
            roots[key] = roots[roots[key]]
            key = roots[key]
        return key

    for profile, names in zip(profiles, keys, strict=True):
        for kernel in filter(is_mapped, profile.kernels):
            first, *others = sorted((names[index] for index in kernel.nodes), key=order.__getitem__)
            for other in others:
                roots[find_root(other)] = find_root(first)
    members: dict[str, list[str]] = {}
    for key in order:
        members.setdefault(find_root(key), []).append(key)
    places = [_place_kernels(profile, names, find_root) for profile, names in zip(profiles, keys, strict=True)]
    described: dict[str, SourceNode] = {}
    for profile, names in zip(profiles, keys, strict=True):
        for key, node in zip(names, profile.nodes, strict=True):
            if key not in described or (node.module and not described[key].module):
                described[key] = node
    network = [
        _build_piece([described[key] for key in group], _gather(places, root), profiles)
        for root, group in members.items()
        if any(root in each for each in places)
    ]
    return [*_distinguish(network), *_list_others(profiles, places)]


def list_kinds(profile: TrialProfile, kernels: Sequence[Sequence[int]]) -> list[str]:
    """List the kinds of kernels, which are indices by piece."""
    return [profile.kernels[index].kind for indices in kernels for index in indices]


def _identify(profiles: Sequence[TrialProfile]) -> list[list[str]]:
    """Identify the nodes of each profile by keys that others have as well.

    These are names, if all nodes are of ONNX files or have the same names. Else an operator has that key which its
    module calls as often in all sources, by its order there; other nodes have their module in common.
    """
    names = [[node.name for node in profile.nodes] for profile in profiles]
    if all(profile.form == "onnx" for profile in profiles) or all(set(each) == set(names[0]) for each in names):
        return names
    calls = [[(node.module, classify_operator(_name_operator(node))) for node in profile.nodes] for profile in profiles]
    counts = [Counter(each) for each in calls]
    keys: list[list[str]] = []
    for profile, called in zip(profiles, calls, strict=True):
        numbers: Counter[tuple[str, str]] = Counter()
        keys.append([])
        for node, call in zip(profile.nodes, called, strict=True):
            numbers[call] += 1
            is_common = len({each[call] for each in counts}) == 1
            module, operator = call
            keys[-1].append(f"{module}:{operator}:{numbers[call]}" if is_common else module or node.name)
    return keys


def _name_operator(node: SourceNode) -> str:
    return node.operator.removeprefix(_ATEN)


def _merge_orders(keys: Sequence[Sequence[str]]) -> dict[str, int]:
    """Merge the orders of nodes: those that only a later profile has come after their predecessor there."""
    merged = list(dict.fromkeys(keys[0]))
    for others in keys[1:]:
        present, previous = set(merged), ""
        inserted: dict[str, list[str]] = {}
        for key in dict.fromkeys(others):
            if key in present:
                previous = key
            else:
                inserted.setdefault(previous, []).append(key)
        merged = inserted.get("", []) + [each for key in merged for each in (key, *inserted.get(key, ()))]
    return {key: place for place, key in enumerate(merged)}


def _place_kernels(
    profile: TrialProfile, names: Sequence[str], find_root: Callable[[str], str]
) -> dict[str, tuple[int, ...]]:
    """Place the kernels of a profile in pieces, by the root of each piece; those that are in none by their role."""
    placed: dict[str, list[int]] = {}
    for index, kernel in enumerate(profile.kernels):
        special = COPIES if kernel.role == COPY else REST
        root = find_root(names[kernel.nodes[0]]) if is_mapped(kernel) else special
        placed.setdefault(root, []).append(index)
    return {root: tuple(indices) for root, indices in placed.items()}


def _gather(places: Sequence[Mapping[str, tuple[int, ...]]], root: str) -> tuple[tuple[int, ...], ...]:
    return tuple(each.get(root, ()) for each in places)


def _build_piece(
    nodes: Sequence[SourceNode], kernels: tuple[tuple[int, ...], ...], profiles: Sequence[TrialProfile]
) -> Piece:
    operators = tuple(map(_name_operator, nodes))
    ranks = [HEAVY.index(operator) if operator in HEAVY else len(HEAVY) for operator in operators]
    heaviest = nodes[ranks.index(min(ranks))]
    module = heaviest.module or next((node.module for node in nodes if node.module), "")
    ran = [profile.kernels[index] for profile, indices in zip(profiles, kernels, strict=True) for index in indices]
    return Piece(
        name=module or heaviest.name,
        module=module,
        family=describe_operators(operators, is_depthwise=_is_depthwise(nodes, ran)),
        nodes=tuple(node.name for node in nodes),
        operators=operators,
        kernels=kernels,
    )


def _is_depthwise(nodes: Sequence[SourceNode], kernels: Sequence[Kernel]) -> bool:
    """Return whether a convolution has a filter for each channel, as its source or its kernel says."""
    return any("depthwise" in node.operator.lower() for node in nodes) or any(
        f"_{word}_" in f"_{kernel.kind.lower().replace(' ', '_')}_"
        for kernel in kernels
        for word in ("dw", "depthwise")
    )


def _distinguish(pieces: Sequence[Piece]) -> list[Piece]:
    """Distinguish pieces of one module by what they compute, and those that compute the same by a number."""
    counts = Counter(piece.name for piece in pieces)
    renamed = [
        replace(piece, name=f"{piece.name}: {piece.family}") if counts[piece.name] > 1 else piece for piece in pieces
    ]
    counts = Counter(piece.name for piece in renamed)
    numbers: Counter[str] = Counter()
    for place, piece in enumerate(renamed):
        if counts[piece.name] > 1:
            numbers[piece.name] += 1
            renamed[place] = replace(piece, name=f"{piece.name} {numbers[piece.name]}")
    return renamed


def _list_others(profiles: Sequence[TrialProfile], places: Sequence[Mapping[str, tuple[int, ...]]]) -> list[Piece]:
    """List the pieces that are no part of the network; the last has no kernels."""
    names = [name for name in (COPIES, REST) if any(name in each for each in places)]
    kernels = [_gather(places, name) for name in names] + [tuple(() for _ in profiles)]
    return [
        Piece(name=name, module="", family=name, nodes=(), operators=(), kernels=indices)
        for name, indices in zip([*names, BETWEEN], kernels, strict=True)
    ]
