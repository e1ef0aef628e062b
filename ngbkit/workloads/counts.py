"""How large a network is: parameters, torchinfo's mult-adds as the paper has them, and true MACs beside them."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ngbkit.workloads import feeds
from ngbkit.workloads.base import Network
from ngbkit.workloads.export import tensors

if TYPE_CHECKING:
    import torch

_Inputs = list["torch.Tensor"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """The size of a network.

    Parameters
    ----------
    parameters
        Trainable values; of an ONNX file, the values of its constants, those of int64 (shapes, indices) left out.
    mult_adds
        torchinfo's ``total_mult_adds`` at batch size 1, the paper's column "MACs" (table IV). It counts a linear layer
        once, not once a token, so that a transformer looks 60 to 140 times smaller than it is.
    macs
        Multiply-accumulate operations of convolutions, matrix products and attention at batch size 1: half the
        operations that ``torch.utils.flop_counter`` sees.

    Both are None where they cannot be counted: for an ONNX file, or an operator that hides its work.
    """

    parameters: int
    mult_adds: int | None = None
    macs: int | None = None


def count(network: Network) -> Counts:
    """The size of a network; its module is left as it is.

    Modules are counted on torch's meta device, which computes shapes and no values, and for real where they refuse it.
    """
    if network.module is None:
        return Counts(parameters=_constants(network.onnx) if network.onnx else 0)
    with _slow_attention():
        return Counts(
            parameters=sum(parameter.numel() for parameter in network.module.parameters()),
            mult_adds=_counted(_mult_adds, network),
            macs=_counted(_macs, network),
        )


def _counted(counter: Callable[[torch.nn.Module, _Inputs], int], network: Network) -> int | None:
    import torch

    assert network.module is not None
    arrays = feeds.draw(network.inputs, network.examples, 1, 0)
    for device in ("meta", "cpu"):
        inputs = [torch.from_numpy(array).to(device) for array in arrays]
        try:
            with torch.no_grad():
                # An operator that hides its work counts as nothing, and no network does no work.
                return counter(_weightless(network.module) if device == "meta" else network.module, inputs) or None
        except Exception:  # noqa: BLE001  the next device, or no count: a size is never worth a failed trial
            continue
    return None


def _mult_adds(module: torch.nn.Module, inputs: _Inputs) -> int:
    import torchinfo

    device = inputs[0].device
    return int(torchinfo.summary(module, input_data=inputs, verbose=0, device=device).total_mult_adds)


def _macs(module: torch.nn.Module, inputs: _Inputs) -> int:
    from torch.utils.flop_counter import FlopCounterMode

    with FlopCounterMode(display=False) as counter:
        module(*inputs)
    return int(counter.get_total_flops()) // 2


def _weightless(module: torch.nn.Module) -> torch.nn.Module:
    """A copy on the meta device, made without copying a weight first."""
    import torch

    weights = (*module.parameters(), *module.buffers())
    memo = {
        id(weight): torch.nn.Parameter(weight.to("meta"), False) for weight in weights if weight.is_floating_point()
    }
    return copy.deepcopy(module, memo).to("meta")


@contextmanager
def _slow_attention() -> Iterator[None]:
    """Attention's fast path is one operator that no counter sees into."""
    from torch.backends import mha

    before = mha.get_fastpath_enabled()
    mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        mha.set_fastpath_enabled(before)


def _constants(path: Path) -> int:
    import math

    import onnx

    graph = onnx.load(path, load_external_data=False).graph
    return sum(math.prod(tensor.dims) for tensor in tensors(graph) if tensor.data_type != onnx.TensorProto.INT64)
