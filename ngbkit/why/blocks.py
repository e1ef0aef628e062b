"""Folds the pieces of a network to its modules: blocks, and the modules in them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from ngbkit import validation
from ngbkit.why.pieces import Piece

# The parts of a network whose source names no modules.
_PARTS = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class PiecesPart:
    """A part of a network, with the indices of its pieces."""

    name: str
    pieces: tuple[int, ...]
    is_network: bool = True


def fold(pieces: Sequence[Piece], depth: int | None) -> list[PiecesPart]:
    """Fold pieces to modules of that depth, in topological order; None folds nothing.

    The number of a module belongs to its name: at depth 1, ``layer3.1.conv2`` is in ``layer3.1``.
    """
    depth = validation.check("depth", validation.Count | None, depth)
    network = [index for index, piece in enumerate(pieces) if piece.is_network]
    others = [PiecesPart(name=piece.name, pieces=(index,), is_network=False) for index, piece in enumerate(pieces)]
    if depth is None:
        return [PiecesPart(name=pieces[index].name, pieces=(index,)) for index in network] + others[len(network) :]
    if 2 * sum(bool(pieces[index].module) for index in network) < len(network):
        return [*_split(pieces, network), *others[len(network) :]]
    groups: dict[str, list[int]] = {}
    for index in network:
        groups.setdefault(shorten_module(pieces[index].module, depth) or pieces[index].name, []).append(index)
    return [PiecesPart(name=name, pieces=tuple(group)) for name, group in groups.items()] + others[len(network) :]


def shorten_module(module: str, depth: int) -> str:
    """Shorten the path of a module to that depth."""
    steps: list[str] = []
    for word in filter(None, module.split(".")):
        if word.isdecimal() and steps and not steps[-1].rpartition(".")[2].isdecimal():
            steps[-1] += f".{word}"
        else:
            steps.append(word)
    return ".".join(steps[:depth])


def group_families(pieces: Sequence[Piece]) -> list[PiecesPart]:
    """Group pieces by what they compute; what is no part of the network stays as it is."""
    groups: dict[tuple[str, bool], list[int]] = {}
    for index, piece in enumerate(pieces):
        groups.setdefault((piece.family, piece.is_network), []).append(index)
    return [
        PiecesPart(name=family, pieces=tuple(group), is_network=is_network)
        for (family, is_network), group in groups.items()
    ]


def describe_kernels(kinds: Sequence[str], most: int = 3) -> str:
    """Describe kernels by kind, the most frequent first: ``Conv × 2, Relu``."""
    counts = Counter(kinds).most_common()
    texts = [f"{kind} × {count}" if count > 1 else kind for kind, count in counts]
    return ", ".join(texts[:most] + (["…"] if len(texts) > most else [])) or "–"


def _split(pieces: Sequence[Piece], network: Sequence[int]) -> list[PiecesPart]:
    """Split pieces without modules into parts of about the same number, from the input to the output."""
    size = -(-len(network) // _PARTS) or 1
    groups = [network[start : start + size] for start in range(0, len(network), size)]
    return [PiecesPart(name=f"from {pieces[group[0]].name}", pieces=tuple(group)) for group in groups]
