"""The kind of a network follows from its operators, in ONNX files and in exported programs alike."""

from __future__ import annotations

from pathlib import Path

import onnx
import onnx.parser
import pytest
import torch
from torch import nn

from ngbkit.compilers.quantisers import architecture
from ngbkit.compilers.quantisers.architecture import Architecture

ATTENTION = """
    q = MatMul(x, w)
    t = Transpose<perm = [0, 2, 1]>(q)
    s = MatMul(q, t)
    d = Mul(s, c)
    p = Softmax(d)
    y = MatMul(p, q)
"""
# The weights of an exporter that folds no constants; probabilities without a product before them are no attention.
CLASSES = """
    t = Transpose<perm = [1, 0]>(w)
    q = MatMul(x, t)
    p = Softmax(q)
    y = MatMul(p, w)
"""
GRAPHS = {
    "attention": (ATTENTION, (1, 1, 0, True)),
    "classes": (CLASSES, (0, 2, 0, False)),
    "fused": ("h = MatMul(x, w)\n y = Attention<q_num_heads = 2, kv_num_heads = 2>(h, h, h)", (1, 1, 0, True)),
    "convolutions": ("v = Conv(x, k)\n h = Conv(v, k)" + ATTENTION.replace("MatMul(x", "MatMul(h"), (1, 1, 2, False)),
}


def summarize(kind: Architecture) -> tuple[int, int, int, bool]:
    return kind.attentions, kind.linear_layers, kind.convolutions, kind.is_transformer


@pytest.mark.parametrize(("body", "expected"), GRAPHS.values(), ids=GRAPHS)
def test_an_onnx_file_has_a_kind(body: str, expected: tuple[int, int, int, bool], tmp_path: Path) -> None:
    """An attention is an operator, or a softmax between two products of values; most layers decide."""
    graph = onnx.parser.parse_graph(
        f"net (float[1, 8, 8] x) => (float[1, 8, 8] y) <float[8, 8] w, float[8, 8, 1] k, float c> {{{body}}}"
    )
    for name, shape in {"w": (8, 8), "k": (8, 8, 1), "c": ()}.items():
        graph.initializer.append(onnx.helper.make_tensor(name, 1, shape, [0.5] * max(1, torch.Size(shape).numel())))
    onnx.save(onnx.helper.make_model(graph), tmp_path / "net.onnx")

    assert expected == summarize(architecture.read_onnx(tmp_path / "net.onnx"))


class Written(nn.Module):
    """Attention in plain operators."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q = self.linear(x)
        return torch.softmax(q @ q.transpose(1, 2) / 3, -1) @ q


def test_a_program_has_the_same_kind() -> None:
    """ATen's attention counts as one in plain operators does, and a convolution as in ONNX."""
    encoder = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    modules: list[tuple[nn.Module, tuple[int, ...]]] = [
        (Written(), (1, 4, 8)),
        (encoder, (1, 4, 8)),
        (nn.Sequential(nn.Conv2d(3, 4, 3), nn.SiLU()), (1, 3, 8, 8)),
    ]
    programs = [torch.export.export(module.eval(), (torch.zeros(shape),)).module() for module, shape in modules]
    kinds = [architecture.read_program(program.graph) for program in programs]

    assert [(1, 1, 0, True), (1, 4, 0, True), (0, 0, 1, False)] == [summarize(each) for each in kinds]
    assert [0, 0, 1] == [each.smooth_activations for each in kinds]
