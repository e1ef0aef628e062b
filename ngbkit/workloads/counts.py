"""How large a network is: parameters, bytes, torchinfo's mult-adds as the paper has them, and true MACs beside them."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ngbkit.workloads import feeds, onnx_counts
from ngbkit.workloads.base import Network
from ngbkit.workloads.export import flatten

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
        operations that ``torch.utils.flop_counter`` sees; of an ONNX file, what `onnx_counts` makes of its shapes.
    weight_bytes
        Parameters and buffers as they are stored; of an ONNX file, its constants.
    input_bytes, output_bytes
        What one sample brings and takes away, in the network's own dtypes.

    Each is None where it cannot be counted: an operator hides its work, a shape is not known before it runs.
    """

    parameters: int
    mult_adds: int | None = None
    macs: int | None = None
    weight_bytes: int | None = None
    input_bytes: int | None = None
    output_bytes: int | None = None


def count(network: Network) -> Counts:
    """The size of a network; its module is left as it is.

    Modules are counted on torch's meta device, which computes shapes and no values, and for real where they refuse it.
    A network that takes one batch size only is counted at that one, and the counts are of a sample.
    """
    input_bytes = sum(math.prod(spec.shape) * np.dtype(spec.dtype).itemsize for spec in network.inputs)
    module = network.module
    if module is None:
        return _count_file(network, input_bytes)
    with _slow_attention():
        return Counts(
            parameters=sum(parameter.numel() for parameter in module.parameters()),
            mult_adds=_counted(_mult_adds, network),
            macs=_counted(_macs, network),
            weight_bytes=sum(tensor.nbytes for tensor in (*module.parameters(), *module.buffers())),
            input_bytes=input_bytes,
            output_bytes=_counted(_output_bytes, network),
        )


def _count_file(network: Network, input_bytes: int) -> Counts:
    if network.onnx is None:
        return Counts(parameters=0, input_bytes=input_bytes)
    model, rows = onnx_counts.open_file(network.onnx), network.batch_size or 1

    def counted(counter: Callable[[Any], int]) -> int | None:
        try:
            return counter(onnx_counts.bind(model, rows)) // rows or None
        except Exception:  # noqa: BLE001  a size is never worth a failed trial
            return None

    return Counts(
        parameters=onnx_counts.parameters(model),
        macs=counted(onnx_counts.macs),
        weight_bytes=onnx_counts.weight_bytes(model),
        input_bytes=input_bytes,
        output_bytes=counted(onnx_counts.output_bytes),
    )


def _counted(counter: Callable[[torch.nn.Module, _Inputs], int], network: Network) -> int | None:
    import torch

    assert network.module is not None
    rows = network.batch_size or 1
    arrays = feeds.draw(network.inputs, network.examples, rows, 0)
    for device in ("meta", "cpu"):
        inputs = [torch.from_numpy(array).to(device) for array in arrays]
        try:
            with torch.no_grad():
                # An operator that hides its work counts as nothing, and no network does no work.
                total = counter(_weightless(network.module) if device == "meta" else network.module, inputs)
                return total // rows or None
        except Exception:  # noqa: BLE001  the next device, or no count: a size is never worth a failed trial
            continue
    return None


def _output_bytes(module: torch.nn.Module, inputs: _Inputs) -> int:
    return sum(output.nbytes for output in flatten(module(*inputs)))


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
