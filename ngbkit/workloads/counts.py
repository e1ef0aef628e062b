"""The size of a network: parameters, bytes, torchinfo's mult-adds as in the paper, and its true MACs."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ngbkit.workloads import export, feeds, onnx_counts
from ngbkit.workloads.base import Network
from ngbkit.workloads.export import count_weight_bytes, flatten

if TYPE_CHECKING:
    import torch

_Inputs = list["torch.Tensor"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """The size of a network.

    Parameters
    ----------
    parameters
        The number of trainable values; of an ONNX file, the values of its constants except int64 (shapes, indices).
    mult_adds
        torchinfo's ``total_mult_adds`` at batch size 1, the paper's column "MACs" (table IV). It counts a linear layer
        once, not once per token: for a transformer, 60 to 140 times too few.
    macs
        Multiply-accumulate operations of convolutions, matrix products and attention at batch size 1: half the
        operations that ``torch.utils.flop_counter`` counts; of an ONNX file, those that `onnx_counts` counts.
    weight_bytes
        Parameters and buffers as stored; of an ONNX file, its constants.
    input_bytes, output_bytes
        The bytes of one sample's inputs and outputs, in the network's own dtypes.

    A count is None if an operator hides its work, or a shape is unknown before the network runs.
    """

    parameters: int
    mult_adds: int | None = None
    macs: int | None = None
    weight_bytes: int | None = None
    input_bytes: int | None = None
    output_bytes: int | None = None


def count(network: Network) -> Counts:
    """Count the size of a network, per sample, without changing its module."""
    rows = network.batch_size or 1
    input_bytes = sum(feeds.count_bytes(spec, rows) for spec in network.inputs) // rows
    module = network.module
    if module is None:
        return _count_file(network, input_bytes)
    with _disable_fast_attention():
        return Counts(
            parameters=sum(parameter.numel() for parameter in module.parameters()),
            mult_adds=_count_module(_count_mult_adds, network),
            macs=_count_module(_count_macs, network),
            weight_bytes=count_weight_bytes(module),
            input_bytes=input_bytes,
            output_bytes=_count_module(_count_output_bytes, network),
        )


def _count_file(network: Network, input_bytes: int) -> Counts:
    if network.onnx is None:
        return Counts(parameters=0, input_bytes=input_bytes)
    model, rows = onnx_counts.load_without_weights(network.onnx), network.batch_size or 1

    def count_graph(counter: Callable[[Any], int]) -> int | None:
        try:
            return counter(onnx_counts.bind(model, rows, network.inputs)) // rows or None
        except Exception:  # noqa: BLE001  a size is never worth a failed trial
            return None

    return Counts(
        parameters=onnx_counts.count_parameters(model),
        macs=count_graph(onnx_counts.count_macs),
        weight_bytes=onnx_counts.count_weight_bytes(model),
        input_bytes=input_bytes,
        output_bytes=count_graph(onnx_counts.count_output_bytes),
    )


def _count_module(counter: Callable[[torch.nn.Module, _Inputs], int], network: Network) -> int | None:
    import torch

    assert network.module is not None
    rows = network.batch_size or 1
    arrays = feeds.draw(network.inputs, network.examples, rows, 0)
    for device in ("meta", "cpu"):
        inputs = [export.to_tensor(array).to(device) for array in arrays]
        try:
            with torch.no_grad():
                # A total of 0 means that an operator hides its work: every network does some.
                total = counter(_copy_to_meta(network.module) if device == "meta" else network.module, inputs)
                return total // rows or None
        except Exception:  # noqa: BLE001  try the next device: a size is never worth a failed trial
            continue
    return None


def _count_output_bytes(module: torch.nn.Module, inputs: _Inputs) -> int:
    return sum(output.nbytes for output in flatten(module(*inputs)))


def _count_mult_adds(module: torch.nn.Module, inputs: _Inputs) -> int:
    import torchinfo

    device = inputs[0].device
    return int(torchinfo.summary(module, input_data=inputs, verbose=0, device=device).total_mult_adds)


def _count_macs(module: torch.nn.Module, inputs: _Inputs) -> int:
    from torch.utils.flop_counter import FlopCounterMode

    with FlopCounterMode(display=False) as counter:
        module(*inputs)
    return int(counter.get_total_flops()) // 2


def _copy_to_meta(module: torch.nn.Module) -> torch.nn.Module:
    """Copy a module to the meta device without copying its weights."""
    import torch

    weights = (*module.parameters(), *module.buffers())
    memo = {
        id(weight): torch.nn.Parameter(weight.to("meta"), False) for weight in weights if weight.is_floating_point()
    }
    return copy.deepcopy(module, memo).to("meta")


@contextmanager
def _disable_fast_attention() -> Iterator[None]:
    """Disable attention's fast path, one operator that hides its work from every counter."""
    from torch.backends import mha

    was_enabled = mha.get_fastpath_enabled()
    mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        mha.set_fastpath_enabled(was_enabled)
