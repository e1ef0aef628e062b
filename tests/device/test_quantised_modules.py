"""Quantised torch modules are files of a preparation, and columns beside f32, as quantised ONNX files are."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from plans import carry_out
from torch import nn

from ngbkit import Sweep
from ngbkit.sweep.records import Failure, Measurement, Record
from ngbkit.workloads import cell
from ngbkit.workloads.base import Workload

LINEAR = """
import torch
from torch import nn
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 4))
input_shape = (16,)
"""
CONVOLUTION = """
import torch
from torch import nn
torch.manual_seed(0)
model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
input_shape = (3, 8, 8)
"""


def measure(source: str, labels: list[str], shape: tuple[int, ...]) -> dict[str, Record]:
    """Measure columns of a network in a cell, and return their records by label."""
    samples = np.random.default_rng(1).standard_normal((40, *shape)).astype(np.float32)
    (workload,) = cell.from_source(source, name="net")
    sweep = Sweep(workload, labels, [2], calibrate=samples, accept="agreement>=0.5", repeats=2, min_rounds=2, threads=1)
    records = carry_out(sweep)[0]
    return {label: records[label, 2] for label in labels}


@pytest.mark.parametrize(
    ("compiler", "quantisers"),
    [
        ("identity", {"int8": "torchao-static", "int8-dynamic": "torchao-dynamic"}),
        ("inductor", {"int8": "pt2e-inductor"}),
        ("executorch", {"int8": "xnnpack", "int8-dynamic": "xnnpack-dynamic"}),
    ],
)
def test_a_module_has_columns_in_int8(compiler: str, quantisers: dict[str, str]) -> None:
    """Each way to int8 runs and costs a little, and f32 costs nothing in the same runtime."""
    columns = {f'{compiler}{{"precision":"{precision}"}}': precision for precision in quantisers}
    plain, *records = measure(LINEAR, [compiler, *columns], (16,)).values()

    assert isinstance(plain, Measurement)
    assert plain.facts["relative_error"] < 1e-5
    for precision, record in zip(columns.values(), records, strict=True):
        assert isinstance(record, Measurement)
        assert (precision, "ok") == (record.contract.precision, record.status)
        assert quantisers[precision] == record.facts["quantised"]["quantiser"]
        assert 1e-4 < record.facts["relative_error"] < 0.1
        assert record.facts["file_bytes"] > 64 * 20


def test_what_torchao_does_not_quantise_is_unsupported() -> None:
    """A network without a linear layer has no int8 in eager mode, and the reason names compilers that have it."""
    (record,) = measure(CONVOLUTION, ['identity{"precision":"int8"}'], (3, 8, 8)).values()

    assert isinstance(record, Failure)
    assert "unsupported" == record.status
    assert "no linear layer" in record.error


def test_layers_in_f32_are_part_of_the_contract() -> None:
    """A network of which torchao quantises a part computes in f32 and int8."""
    source = CONVOLUTION.replace("nn.Flatten()", "nn.Flatten(), nn.Linear(8, 4)")
    (record,) = measure(source, ['identity{"precision":"int8-dynamic"}'], (3, 8, 8)).values()

    assert isinstance(record, Measurement)
    assert "f32+int8" == record.contract.precision
    assert (1, 1) == (record.facts["quantised"]["linear_layers"], record.facts["quantised"]["other_layers"])


def test_a_quantiser_of_modules_refuses_an_onnx_file(mlp: Workload) -> None:
    """Eager mode quantises no ONNX file, and names what does."""
    label = 'identity{"precision":"int8-dynamic"}'
    record = carry_out(Sweep(mlp, [label], [2], repeats=2, min_rounds=2, threads=1))[0][label, 2]

    assert isinstance(record, Failure)
    assert "quantises torch modules; mlp is an ONNX file. Use onnxruntime" in record.error


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of ExecuTorch
def test_xnnpack_keeps_the_sums_of_a_transformer_in_f32(tmp_path: Path) -> None:
    """In a network without attention it quantises them as well."""
    from ngbkit.compilers.quantiser import Quantisation
    from ngbkit.compilers.quantisers.pt2e import XNNPACK

    class Layers(nn.Module):
        def __init__(self, *, attends: bool) -> None:
            super().__init__()
            self.first, self.last, self.attends = nn.Linear(8, 8), nn.Linear(8, 8), attends
            self.places = nn.Embedding(5, 8)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = self.first(x)
            if self.attends:
                y = nn.functional.scaled_dot_product_attention(y, y, y * self.places(torch.arange(4) + 1))
            return x + self.last(y)

    sums = []
    for attends in (True, False):
        target = tmp_path / f"{attends}.pt2"
        batches = [{"x": np.random.default_rng(0).standard_normal((1, 4, 8)).astype(np.float32)}]
        module = Layers(attends=attends).eval()
        XNNPACK.quantise(Quantisation(source=None, module=module, target=target, batches=batches, threads=1))
        calls = [node for node in XNNPACK.load(target, module).graph.nodes if node.op == "call_function"]
        assert any("quantize_per_channel" in str(call.target) for call in calls)
        (last,) = [node for node in calls if "add" in str(node.target) and node.args[0].meta["val"].ndim == 3]
        sums.append("dequantize" in str(last.args[0].target))

    assert [False, True] == sums
