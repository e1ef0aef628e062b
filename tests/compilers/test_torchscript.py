"""TorchScript passes the conformance suite, and reports its fusions."""

import re
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from attempts import find_attempt

from ngbkit.compilers import torchscript
from ngbkit.compilers.base import Task, Tuning
from ngbkit.testing import CompilerConformance
from ngbkit.workloads.base import BATCH, TensorSpec


class TestTorchScript(CompilerConformance):
    compiler = "torchscript"


def test_a_folded_batch_norm_is_a_fusion() -> None:
    """A BatchNorm is folded into each of the two convolutions, and none remains."""
    explained = find_attempt("torchscript").explained

    assert 9 == explained["nodes_before"]
    assert 2 == explained["nodes_fused"]
    assert "aten::batch_norm" not in explained["operators"]


def test_a_group_of_the_executor_is_one_fused_node() -> None:
    """A fused group counts as one node, and its fallback for other types as none."""
    graph = torch._C.parse_ir("""
graph(%x : Tensor, %fits : bool):
  %one : int = prim::Constant[value=1]()
  %y : Tensor = prim::If(%fits)
    block0():
      %a : Tensor = prim::TensorExprGroup(%x)
      -> (%a)
    block1():
      %b : Tensor = aten::relu(%x)
      %c : Tensor = aten::add(%b, %b, %one)
      -> (%c)
  %z : Tensor = aten::neg(%y)
  return (%z)
""")
    operators = list(torchscript._list_operators(graph))

    assert ["prim::TensorExprGroup", "aten::neg"] == [node.kind() for node in operators]
    assert [True, False] == [torchscript._is_fused(node) for node in operators]


def test_only_its_own_deprecation_is_silenced() -> None:
    """Other warnings during compilation are not suppressed."""

    def warn() -> None:
        with torchscript._silence_deprecations():
            warnings.warn("`torch.jit.trace` is deprecated. Please switch.", FutureWarning, stacklevel=1)
            warnings.warn("something else is deprecated", FutureWarning, stacklevel=1)

    with pytest.warns(FutureWarning) as caught:
        warn()

    assert [str(warning.message) for warning in caught] == ["something else is deprecated"]


def test_a_kernel_that_is_missing_is_a_refusal(tmp_path: Path) -> None:
    """A pooling that oneDNN's TorchScript operator lacks makes the trial unsupported, not failed."""
    task = Task(
        form="module",
        module=torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.AdaptiveAvgPool2d(2)).eval(),
        onnx=None,
        inputs=[TensorSpec(name="input", shape=(BATCH, 3, 9, 9))],
        arrays=[np.ones((1, 3, 9, 9), np.float32)],
        batch_size=1,
        options={},
        threads=torch.get_num_threads(),
        cache=tmp_path,
        tuning=Tuning(folder=tmp_path),
    )

    with pytest.raises(RuntimeError) as raised:
        torchscript.compile(task)

    assert any(re.search(pattern, f"RuntimeError: {raised.value}") for pattern in torchscript.COMPILER.refusals)
