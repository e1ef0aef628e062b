"""Cuts networks at the tensors that several runtimes keep: the pieces between two cuts are what all of them compute.

Nodes of the source network belong to one piece if any runtime computes them in one kernel.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from ngbkit import validation
from ngbkit.compilers.profiles.profile import Kernel, SourceNode
from ngbkit.errors import MetricError
from ngbkit.why.trial_profile import COPY, TrialProfile, is_mapped

COPIES, REST, BETWEEN = "copies and layout changes", "kernels of unknown origin", "between kernels"
"""The pieces that no node of the network asks for."""

# The parts of a network whose source names no modules.
_PARTS = 12
_MOST_KINDS = 3
# The namespace of the operators of torch.
_ATEN = "aten::"
# The nouns of operators of ONNX and of modules of torch, in the plural, those that do most of the work first.
_NOUNS: Mapping[str, str] = {
    **dict.fromkeys(
        ("Conv", "Conv2d", "Conv1d", "ConvInteger", "QLinearConv", "conv2d", "convolution", "_convolution"),
        "convolutions",
    ),
    "Conv depthwise": "depthwise convolutions",
    "Conv grouped": "grouped convolutions",
    **dict.fromkeys(("ConvTranspose", "ConvTranspose2d", "transposed convolution"), "transposed convolutions"),
    **dict.fromkeys(("Attention", "MultiHeadAttention", "MultiheadAttention"), "attention"),
    **dict.fromkeys(("scaled_dot_product_attention", "ScaledDotProductAttention"), "attention"),
    **dict.fromkeys(("MatMul", "Gemm", "Linear", "linear", "matmul", "bmm", "addmm", "Einsum"), "matrix products"),
    **dict.fromkeys(("LSTM", "GRU", "RNN"), "recurrent layers"),
    **dict.fromkeys(("Softmax", "softmax"), "softmax"),
    **dict.fromkeys(("LayerNormalization", "LayerNorm", "LayerNorm2d", "layer_norm"), "layer normalisations"),
    **dict.fromkeys(("BatchNormalization", "BatchNorm2d", "batch_norm"), "batch normalisations"),
    **dict.fromkeys(("InstanceNormalization", "GroupNormalization", "GroupNorm"), "normalisations"),
    **dict.fromkeys(
        ("GlobalAveragePool", "AdaptiveAvgPool2d", "ReduceMean", "mean", "AveragePool", "adaptive_avg_pool2d"),
        "averages",
    ),
    **dict.fromkeys(("MaxPool", "MaxPool2d", "max_pool2d"), "maximum pooling"),
    **dict.fromkeys(("Resize", "Upsample", "interpolate"), "resizing"),
}
HEAVY: Sequence[str] = tuple(_NOUNS)
"""Operators, those that do most of the work first."""

_ACTIVATIONS: Mapping[str, str] = {
    **dict.fromkeys(("Relu", "ReLU", "relu", "relu_"), "ReLU"),
    **dict.fromkeys(("Clip", "ReLU6"), "ReLU6"),
    **dict.fromkeys(("Silu", "SiLU", "Swish", "silu", "silu_"), "SiLU"),
    **dict.fromkeys(("Gelu", "GELU", "gelu"), "GELU"),
    **dict.fromkeys(("HardSwish", "Hardswish", "hardswish"), "hard swish"),
    **dict.fromkeys(("HardSigmoid", "Hardsigmoid"), "hard sigmoid"),
    **dict.fromkeys(("Sigmoid", "sigmoid"), "sigmoid"),
    **dict.fromkeys(("Tanh", "tanh"), "tanh"),
}
# An activation that an exporter writes as several operators: the operator that tells it, and those with it.
_WRITTEN_OUT: Mapping[str, tuple[str, Sequence[str]]] = {
    "Erf": ("GELU", ("Erf", "Div", "Add", "Mul", "Mul")),
    "Sigmoid": ("SiLU", ("Sigmoid", "Mul")),
}
_REST: Mapping[str, str] = {
    **dict.fromkeys(("Add", "add", "add_", "iadd"), "sums"),
    **dict.fromkeys(("Mul", "Div", "mul", "div"), "products"),
    **dict.fromkeys(("QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear"), "conversions of precision"),
    **dict.fromkeys(("Transpose", "permute", "Reshape", "Concat", "Slice", "Gather", "Split", "Roll"), "rearrangement"),
    **dict.fromkeys(("Flatten", "Squeeze", "Unsqueeze", "Expand", "Pad", "reshape", "transpose"), "rearrangement"),
    **dict.fromkeys(("flatten", "view", "cat", "roll", "chunk", "split", "unbind", "contiguous"), "rearrangement"),
}
_MATRIX_PRODUCTS = "matrix products"


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """A part of a network that has a time of its own in every runtime."""

    name: str  # the module of its heaviest node, or that node's name; or what a piece is that is no part of the network
    module: str  # the path of that module, empty where the source has none
    family: str  # what it computes, in words, such as ``"depthwise convolutions with SiLU"``
    nodes: tuple[str, ...]  # the names of its nodes, in topological order
    operators: tuple[str, ...]  # those of the nodes
    kernels: tuple[tuple[int, ...], ...]  # the indices of its kernels in each profile

    @property
    def is_network(self) -> bool:
        """Return whether it is a part of the network."""
        return bool(self.operators)


@dataclass(frozen=True, slots=True, kw_only=True)
class PiecesPart:
    """A part of a network, with the indices of its pieces."""

    name: str
    pieces: tuple[int, ...]
    is_network: bool = True


def cut(profiles: Sequence[TrialProfile]) -> list[Piece]:
    """Cut networks into the pieces that all profiles share, in topological order, then what is no part of them."""
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
        _build_piece([described[key] for key in group], tuple(each.get(root, ()) for each in places), profiles)
        for root, group in members.items()
        if any(root in each for each in places)
    ]
    return [*_distinguish(network), *_list_others(profiles, places)]


def _identify(profiles: Sequence[TrialProfile]) -> list[list[str]]:
    """Identify the nodes of each profile by keys that others have as well.

    These are names, if all nodes are of ONNX files or have the same names. Else an operator has that key which its
    module calls as often in all sources, by its order there; other nodes have their module in common.
    """
    names = [[node.name for node in profile.nodes] for profile in profiles]
    if all(profile.form == "onnx" for profile in profiles) or all(set(each) == set(names[0]) for each in names):
        return names
    calls = [
        [(node.module, classify_operator(node.operator.removeprefix(_ATEN))) for node in profile.nodes]
        for profile in profiles
    ]
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


def _build_piece(
    nodes: Sequence[SourceNode], kernels: tuple[tuple[int, ...], ...], profiles: Sequence[TrialProfile]
) -> Piece:
    operators = tuple(node.operator.removeprefix(_ATEN) for node in nodes)
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
    kernels = [tuple(each.get(name, ()) for each in places) for name in names] + [tuple(() for _ in profiles)]
    return [
        Piece(name=name, module="", family=name, nodes=(), operators=(), kernels=indices)
        for name, indices in zip([*names, BETWEEN], kernels, strict=True)
    ]


def classify_operator(operator: str) -> str:
    """Return what an operator computes, in a word that those of ONNX and of torch have in common; or its own name."""
    return next((words[operator] for words in (_NOUNS, _ACTIVATIONS, _REST) if operator in words), operator.lower())


def describe_operators(operators: Sequence[str], *, is_depthwise: bool = False) -> str:
    """Describe the operators of a piece: the heaviest, with its activation."""
    counts = Counter(operators)
    activations: list[str] = []
    for operator, (name, parts) in _WRITTEN_OUT.items():
        if counts[operator] and counts["Mul"] >= parts.count("Mul"):
            activations.append(name)
            counts = counts - Counter({part: counts[operator] * parts.count(part) for part in set(parts)})
    activations += [_ACTIVATIONS[operator] for operator in counts if operator in _ACTIVATIONS]
    nouns = [noun for operator, noun in _NOUNS.items() if counts[operator]]
    if "softmax" in nouns and sum(counts[name] for name, noun in _NOUNS.items() if noun == _MATRIX_PRODUCTS) > 1:
        nouns.insert(0, "attention")
    if is_depthwise and nouns and nouns[0] == "convolutions":
        nouns[0] = "depthwise convolutions"
    if nouns:
        return nouns[0] + (f" with {' and '.join(dict.fromkeys(activations))}" if activations else "")
    others = [*activations, *(_REST[operator] for operator in counts if operator in _REST)]
    return " and ".join(list(dict.fromkeys(others))[:2]) or ", ".join(list(dict.fromkeys(operators))[:2])


def fold(pieces: Sequence[Piece], depth: int | None) -> list[PiecesPart]:
    """Fold pieces to modules of that depth, in topological order; None folds nothing.

    The number of a module belongs to its name: at depth 1, ``layer3.1.conv2`` is in ``layer3.1``.
    """
    depth = validation.check("depth", validation.Count | None, depth)
    network = [index for index, piece in enumerate(pieces) if piece.is_network]
    others = [
        PiecesPart(name=piece.name, pieces=(index,), is_network=False)
        for index, piece in enumerate(pieces)
        if not piece.is_network
    ]
    if depth is None:
        return [PiecesPart(name=pieces[index].name, pieces=(index,)) for index in network] + others
    if 2 * sum(bool(pieces[index].module) for index in network) < len(network):
        size = -(-len(network) // _PARTS) or 1
        parts = [network[start : start + size] for start in range(0, len(network), size)]
        return [PiecesPart(name=f"from {pieces[part[0]].name}", pieces=tuple(part)) for part in parts] + others
    groups: dict[str, list[int]] = {}
    for index in network:
        groups.setdefault(shorten_module(pieces[index].module, depth) or pieces[index].name, []).append(index)
    return [PiecesPart(name=name, pieces=tuple(group)) for name, group in groups.items()] + others


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


def describe_kernels(kinds: Sequence[str]) -> str:
    """Describe kernels by kind, the most frequent first: ``Conv × 2, Relu``."""
    counts = Counter(kinds).most_common()
    texts = [f"{kind} × {count}" if count > 1 else kind for kind, count in counts]
    return ", ".join(texts[:_MOST_KINDS] + (["…"] if len(texts) > _MOST_KINDS else [])) or "–"
