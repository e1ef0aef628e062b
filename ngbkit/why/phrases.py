"""The operators of a piece in the words of the field: ``depthwise convolutions with SiLU``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

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
