"""TorchScript, held to the protocol."""

import re
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch

from ngbkit.compilers import torchscript
from ngbkit.compilers.base import Task
from ngbkit.testing import CompilerConformance, observe
from ngbkit.workloads.base import TensorSpec


class TestTorchScript(CompilerConformance):
    compiler = "torchscript"


def test_freezing_shrinks_the_graph() -> None:
    """The facts hold the graph's operations before and after, fewer after: BatchNorm is folded."""
    facts = next(attempt.facts for attempt in observe("torchscript") if attempt.network == "two_outputs")

    assert 0 < facts["nodes_after"] < facts["nodes_before"]


def test_only_its_own_deprecation_is_silenced() -> None:
    """Another warning that comes while compiling is not swallowed."""

    def warn() -> None:
        with torchscript._silenced():
            warnings.warn("`torch.jit.trace` is deprecated. Please switch.", FutureWarning, stacklevel=1)
            warnings.warn("something else is deprecated", FutureWarning, stacklevel=1)

    with pytest.warns(FutureWarning) as caught:
        warn()

    assert [str(warning.message) for warning in caught] == ["something else is deprecated"]


def test_a_kernel_that_is_missing_is_a_refusal(tmp_path: Path) -> None:
    """A pooling that oneDNN's TorchScript operator does not do makes the trial unsupported, not failed."""
    task = Task(
        form="module",
        module=torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.AdaptiveAvgPool2d(2)).eval(),
        onnx=None,
        inputs=[TensorSpec(name="input", shape=(3, 9, 9))],
        arrays=[np.ones((1, 3, 9, 9), np.float32)],
        batch_size=1,
        options={},
        threads=torch.get_num_threads(),
        cache=tmp_path,
    )

    with pytest.raises(RuntimeError) as raised:
        torchscript.compile(task)

    assert any(re.search(pattern, f"RuntimeError: {raised.value}") for pattern in torchscript.COMPILER.refusals)
