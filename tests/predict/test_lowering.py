"""A lowered graph has the operators that a runtime executes, and predictors tell it from an exported one."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from mergeable import network, run, sweep
from onnx import numpy_helper
from onnxgraphs import Builder, residual

from ngbkit import predict, set_options
from ngbkit.errors import UnsupportedError, UsageError
from ngbkit.predict import Examples, Graph, network_graphs, optimizer
from ngbkit.predict.lowering import RUNTIMES, find_lowering, lower
from ngbkit.sweep.conversion import parse_workload
from ngbkit.workloads.base import Workload


def write(builder: Builder, folder: Path, *outputs: str) -> Path:
    path = folder / f"{len(list(folder.iterdir()))}.onnx"
    onnx.save(builder.model(*outputs), path)
    return path


def build_twins(folder: Path) -> tuple[Path, Path]:
    """Write a network as an exporter might, with an operator without effect, and the same without it."""
    files = []
    for is_verbose in (True, False):
        builder = Builder(8)
        value = builder.conv("x", 8)
        value = builder.add("Relu", builder.add("Identity", value) if is_verbose else value)
        files.append(write(builder, folder, builder.conv(value, 16, 1)))
    return files[0], files[1]


def test_the_runtimes_that_tell_their_graph_are_listed() -> None:
    """Errors and pages name them."""
    assert ("onnxruntime", "openvino") == RUNTIMES


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_exports_that_a_runtime_treats_alike_are_one_graph(runtime: str, tmp_path: Path) -> None:
    """Two exports that a runtime treats alike are lowered to one graph."""
    verbose, short = build_twins(tmp_path)

    assert predict.read(verbose).digest != predict.read(short).digest
    assert lower(verbose, runtime).digest == lower(short, runtime).digest
    assert runtime == lower(short, runtime).lowering


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_an_activation_is_part_of_its_convolution(runtime: str, tmp_path: Path) -> None:
    """The work stays what it was, as do shapes and weights."""
    # No processor has blocks of more channels, which would be filled up.
    exported = predict.read(residual(tmp_path, 16, 3))
    graph = lower(residual(tmp_path, 16, 3), runtime)
    convolutions = [operator for operator in graph.operators if operator.macs]

    assert exported.macs == graph.macs
    assert 3 == len(convolutions)
    assert [(3, 3)] * 3 == [operator.attributes["kernel_shape"] for operator in convolutions]
    assert "Relu" in {operator.kind for operator in exported.operators}
    assert "Relu" not in {operator.kind for operator in graph.operators}
    assert all(operator.outputs[0].shape is not None for operator in graph.operators)
    assert sum(weight.bytes for operator in convolutions for weight in operator.weights) >= exported.weight_bytes
    assert {(1, 16, 16, 16)} == {operator.outputs[0].shape for operator in convolutions}
    # The sum of a block reads its input beside its convolution.
    assert graph.shared
    assert len(graph.depths) == len(graph.operators)


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_work_whose_name_a_fusion_loses_is_counted(runtime: str, tmp_path: Path) -> None:
    """OpenVINO names a product and its bias after the bias, and a last layer after the output of the network."""
    builder = Builder(16)
    weights = [f"w{index}" for index in range(2)]
    builder.weights = [
        numpy_helper.from_array(np.full((16, 16), 0.1, np.float32), weights[0]),
        numpy_helper.from_array(np.full((16, 16), 0.1, np.float32), weights[1]),
        numpy_helper.from_array(np.arange(16, dtype=np.float32), "bias"),
    ]
    hidden = builder.add("Add", builder.add("MatMul", "x", weights[0]), "bias")
    path = write(builder, tmp_path, builder.add("MatMul", builder.add("Tanh", hidden), weights[1]))
    exported, graph = predict.read(path), lower(path, runtime)

    assert exported.macs == graph.macs
    assert [(exported.macs or 0) // 2] * 2 == [operator.macs for operator in graph.operators if operator.macs]


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_the_batch_is_bound(runtime: str, tmp_path: Path) -> None:
    """The work grows with it."""
    path = residual(tmp_path, 8, 1)

    assert 4 * (lower(path, runtime, 1).macs or 0) == lower(path, runtime, 4).macs


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_nodes_without_names_are_found(runtime: str, tmp_path: Path) -> None:
    """Runtimes tell by names which nodes they replaced."""
    path = residual(tmp_path, 8, 2)
    expected = lower(path, runtime)
    model = onnx.load(path)
    for node in model.graph.node:
        node.name = ""
    onnx.save(model, path)

    assert expected.digest == lower(path, runtime).digest
    assert expected.macs == lower(path, runtime).macs


def test_openvino_tells_its_kernels(tmp_path: Path) -> None:
    """An operator with another implementation is another operator."""
    graph = lower(residual(tmp_path, 16, 1), "openvino")

    assert all(operator.attributes["kernel"] for operator in graph.operators)
    assert "Convolution" in {str(operator.attributes["kernel"]).split()[0] for operator in graph.operators}


def test_options_that_change_the_graph_count(tmp_path: Path) -> None:
    """A graph is lowered with the options of its compiler, such as no optimisation."""
    path = residual(tmp_path, 8, 2)
    graph = lower(path, 'onnxruntime{"optimization":"off"}')

    assert Counter(operator.kind for operator in predict.read(path).operators) == Counter(
        operator.kind for operator in graph.operators
    )
    assert not {"Conv", "Relu"} & {operator.kind for operator in lower(path, "onnxruntime").operators}


def test_features_know_fused_operators(tmp_path: Path) -> None:
    """A fused convolution is a convolution to every model, and a change of the layout is a movement."""
    from ngbkit.predict import features

    for optimization in ("all", "extended"):
        graph = lower(residual(tmp_path, 8, 2), f'onnxruntime{{"optimization":"{optimization}"}}')
        rows = features.encode(graph).operators

        assert not rows[:, features.OPERATOR.index("is_other")].any()
        assert 2 == rows[:, features.OPERATOR.index("is_Conv")].sum()


@pytest.mark.parametrize("compilers", [["tflite"], [""], ["identity"]])
def test_other_runtimes_tell_nothing(compilers: list[str]) -> None:
    """The error names those that do."""
    with pytest.raises(UsageError, match="tells no graph; expected one of onnxruntime, openvino"):
        find_lowering(compilers)


def test_several_runtimes_have_several_graphs() -> None:
    """The error says how to select one."""
    with pytest.raises(UsageError, match=r"labels are of onnxruntime, openvino: .*ds.sel\(compiler="):
        find_lowering(["openvino", "onnxruntime"])


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_a_network_that_the_runtime_cannot_load(runtime: str, tmp_path: Path) -> None:
    """The error has the runtime's reason, and is that of a network which has no such form."""
    builder = Builder(8)
    path = write(builder, tmp_path, builder.add("NoSuchOperator", "x"))

    with pytest.raises(UnsupportedError, match=f"{runtime} cannot run 0.onnx"):
        lower(path, runtime)


def test_a_lowered_graph_is_built_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The cache tells it from the export, and from that of another version of the runtime."""
    workload = parse_workload(str(residual(tmp_path, 8, 1)))
    with set_options(state_dir=tmp_path / "state"):
        exported = network_graphs.graph(workload)
        lowered = network_graphs.graph(workload, lowering="onnxruntime")
        monkeypatch.setattr(network_graphs.lowerings, "lower", lambda *_: 1 / 0)

        assert exported == network_graphs.graph(workload)
        assert lowered == network_graphs.graph(workload, lowering="onnxruntime")
        assert ("", "onnxruntime") == (exported.lowering, lowered.lowering)
        monkeypatch.setattr(network_graphs.lowerings, "describe_version", lambda _: "another")
        with pytest.raises(ZeroDivisionError):
            network_graphs.graph(workload, lowering="onnxruntime")


@pytest.fixture
def lowered(tmp_path: Path) -> Examples:
    """Lowered networks with a latency each."""
    files = [residual(tmp_path, 8, blocks, size=size) for blocks in (1, 2, 3) for size in (8, 16, 24)]
    with set_options(state_dir=tmp_path / "state"):
        return predict.examples(files, np.linspace(1e-3, 9e-3, 9), runtime="onnxruntime", lowered=True)


def test_examples_are_saved_with_their_lowering(lowered: Examples, tmp_path: Path) -> None:
    """Saved examples keep their lowering and their graphs."""
    again = predict.load_examples(lowered.save(tmp_path / "examples.nc"))

    assert "onnxruntime" == lowered.lowering == again.lowering
    assert lowered.graphs == again.graphs


def test_graphs_of_two_lowerings_are_no_examples(lowered: Examples, tmp_path: Path) -> None:
    """The error of examples with two lowerings names both."""
    graphs = [lowered.graphs[0], predict.read(residual(tmp_path, 32, 2))]

    with pytest.raises(UsageError, match="got those of onnxruntime, the export"):
        predict.examples(graphs, [1e-3, 2e-3], runtime="onnxruntime")


def test_a_predictor_predicts_graphs_of_its_lowering(lowered: Examples, tmp_path: Path) -> None:
    """A predictor lowers a network by itself, refuses an export, and leads no search."""
    fitted = predict.load(predict.fit(lowered, "linear", folds=3).save(tmp_path / "linear.safetensors"))
    path = residual(tmp_path, 8, 4)

    assert "onnxruntime" == fitted.lowering
    with set_options(state_dir=tmp_path / "state"):
        latency = fitted.predict(str(path), ci=0.5)["latency"]
    np.testing.assert_allclose(fitted.seconds([lower(path, "onnxruntime")], ci=0.5)[0], [latency])
    for use in (lambda graph: fitted.seconds([graph]), lambda graph: fitted.costs(graph, "onnxruntime")):
        with pytest.raises(UsageError, match=r"got that of the export; expected that of onnxruntime, .*lowering='onn"):
            use(predict.read(path))
    with pytest.raises(UsageError, match="of the operators that onnxruntime executes"):
        optimizer.predicted(fitted, "onnxruntime")


def test_a_predictor_of_exports_refuses_lowered_graphs(tmp_path: Path) -> None:
    """A predictor of exports refuses lowered graphs, and the reverse."""
    files = [residual(tmp_path, width, 1) for width in (8, 16, 24, 32)]
    fitted = predict.fit(
        predict.examples([predict.read(file) for file in files], [1e-3, 2e-3, 3e-3, 4e-3]), "flops", folds=0
    )

    with pytest.raises(UsageError, match="got that of openvino; expected that of the export"):
        fitted.seconds([lower(files[0], "openvino")])


def test_a_dataset_is_collected_with_lowered_graphs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lowered graphs of one runtime are collected and saved beside the exports."""
    built: list[str] = []

    def graph(workload: Workload, batch_size: int = 1, factors: dict | None = None, *, lowering: str = "") -> Graph:
        del factors
        built.append(lowering)
        path = residual(tmp_path, 16 if workload.name == "wide" else 8, 1)
        return lower(path, lowering, batch_size) if lowering else predict.read(path, batch_size)

    monkeypatch.setattr(network_graphs, "graph", graph)
    data = run(sweep(network("wide"), network("narrow")))
    with pytest.raises(UsageError, match="lowered graphs are of one runtime"):
        predict.collect(data, lowered=True)
    selected = predict.attach(predict.attach(data.sel(compiler=["openvino"])), lowered=True)
    assert {"", "openvino"} == set(built)
    built.clear()

    examples = predict.collect(selected, lowered=True)
    assert "openvino" == examples.lowering
    assert (("cpu", "openvino"),) == examples.runtimes
    assert "" == predict.collect(selected).lowering
    assert not built


def test_operators_are_profiled_with_the_labels(tmp_path: Path) -> None:
    """Profiles of one runtime are scaled to the labels, and a graph network is fitted to them."""
    files = [residual(tmp_path, width, blocks) for width in (8, 16, 24) for blocks in (1, 2)]
    seconds = np.linspace(1e-3, 6e-3, 6)
    with set_options(state_dir=tmp_path / "state"):
        profiles = [predict.profile(str(file), runtime="openvino", calls=5) for file in files]
        labels = predict.examples([graph for graph, _ in profiles], seconds, runtime="openvino")
        costs = tuple(cost[:, None] for _, cost in profiles)
        examples = predict.merge(replace(labels, operator_seconds=costs))
        again = predict.load_examples(examples.save(tmp_path / "examples.nc"))
        fitted = predict.fit(again, "gnn", folds=2, epochs=3, width=8, layers=1)
        path = residual(tmp_path, 8, 3)
        latency = fitted.predict(str(path), ci=0.5)["latency"]

    np.testing.assert_allclose(seconds, [np.nansum(values) for values in examples.operator_seconds])
    for expected, actual in zip(examples.operator_seconds, again.operator_seconds, strict=True):
        np.testing.assert_array_equal(expected, actual)
    assert 0 < fitted.costs(lower(path, "openvino"), "openvino").sum() <= 1e3 * float(latency[0])
