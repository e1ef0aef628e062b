"""The batch of a user's own file, which its description claims by a symbol or a place, as its baseline treats it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ngbkit.device.reference import Reference
from ngbkit.device.reference_runs import run_batches
from ngbkit.workloads import batches, dimensions, feeds, onnx_inputs, precision
from ngbkit.workloads.base import BATCH, Network, TensorSpec

if TYPE_CHECKING:
    from ngbkit.workloads.batches import Run
    from ngbkit.workloads.feeds import Array


def settle(network: Network, expected: Reference, seed: int, threads: int, bind: Callable[[int], Path]) -> Network:
    """Return the network of a file whose batch is one only if rows were seen to be samples."""
    size = network.batch_size
    if size == 1 or expected.problem or not _can_take_rows(network.inputs):
        return network
    run = _build_run(network, seed, threads, bind)
    has_samples = size is None and expected.row_wise and any(axis is not None for axis in expected.axes)
    if has_samples and batches.keeps_rows(run, expected.axes):
        return network
    import onnx

    assert network.onnx is not None
    model = onnx.load(network.onnx, load_external_data=False)
    kind = precision.find_graph_precision(model)
    view = batches.check_claim(
        network.inputs,
        run,
        size,
        batches.TOLERANCE if kind == "f32" else batches.TOLERANCE_16,
        # A scale that is found while it runs is one of all samples.
        may_mix=kind == "q8" or onnx_inputs.is_called_batch(model, network.inputs),
        factor=_name_length(network, model) if size is None else "",
    )
    if view is None or (view.size == size and view.specs is network.inputs):
        return network
    return replace(network, inputs=view.specs, batch_size=view.size, batch_reason=view.reason)


def restore(network: Network, prepared: Mapping[str, Any]) -> Network:
    """Return the network of a file with the batch that its preparation has seen."""
    return replace(
        network,
        inputs=[TensorSpec.from_json(data) for data in prepared["inputs"]],
        batch_size=prepared["batch_size"],
        batch_reason=prepared["facts"].get("fixed_batch", ""),
    )


def _can_take_rows(specs: Sequence[TensorSpec]) -> bool:
    """Return whether a row is a place in one dimension of each input that has some."""
    counts = [sum(BATCH in dimensions.list_names(side) for side in spec.shape) for spec in specs]
    return max(counts, default=0) == 1 and all(
        count == 0 or spec.batch_axis is not None for count, spec in zip(counts, specs, strict=True)
    )


def _name_length(network: Network, model: Any) -> str:
    """Return the name of the claimed dimension as a factor."""
    index, axis = next(
        (index, spec.batch_axis) for index, spec in enumerate(network.inputs) if spec.batch_axis is not None
    )
    assert network.onnx is not None
    specs, _ = onnx_inputs.describe(network.onnx, model, {network.inputs[index].name: None})
    return str(specs[index].shape[axis])


def _build_run(network: Network, seed: int, threads: int, bind: Callable[[int], Path]) -> Run:
    """Build the function that runs the baseline on rows that differ."""
    rows = network.batch_size or batches.MOST_ROWS
    arrays = feeds.draw(network.inputs, batches.vary(network.inputs, network.examples), rows, seed)
    batched = next(place for place, spec in enumerate(network.inputs) if spec.batch_axis is not None)

    def call(chosen: Sequence[Array]) -> list[Array] | None:
        count = chosen[batched].shape[network.inputs[batched].batch_axis or 0]
        try:
            return next(run_batches(network, [list(chosen)], count, bind, threads))
        except Exception:  # noqa: BLE001  a runtime may raise anything about a user's own network
            return None

    return batches.choose_rows(network.inputs, arrays, call)
