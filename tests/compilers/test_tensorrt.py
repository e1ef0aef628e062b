"""TensorRT passes the conformance suite if it works here, and with a fake GPU and library everywhere."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import onnxruntime.quantization  # noqa: F401  it adds to sys.path, which a fixture restores
import pytest
from hardware.accelerators.faking import FakeGpu, install_tensorrt, show_driver

from ngbkit.compilers import tensorrt
from ngbkit.compilers.base import Program, Task, Tuning
from ngbkit.compilers.profiles import tensorrt as profiler
from ngbkit.compilers.profiles.profile import SourceNode
from ngbkit.compilers.profiles.source_graph import SourceGraph
from ngbkit.compilers.quantiser import Quantisation
from ngbkit.compilers.quantisers.onnxruntime import STATIC_TENSORRT
from ngbkit.errors import UnsupportedError
from ngbkit.hardware.accelerators import events, probing
from ngbkit.testing import CompilerConformance
from ngbkit.testing.networks import NETWORKS, relative_rmse, run_reference

VERSIONS = {"10.13.0": "TENSORRT_10", "11.4.0": "TENSORRT_11"}
SUITE = [
    name for name in vars(CompilerConformance) if name.startswith("test_") and name != "test_says_why_it_is_unavailable"
]
Compile = Callable[..., Program]


class TestTensorRt(CompilerConformance):
    compiler = "tensorrt"
    accelerator = "cuda"
    required = False  # its packages are only on NVIDIA's own index


@pytest.fixture(scope="class", params=VERSIONS)
def conformance(
    request: pytest.FixtureRequest, driver_folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[CompilerConformance]:
    """The suite for a fake TensorRT that its children find beside a fake driver, and no test of another class."""
    folder = tmp_path_factory.mktemp("installed")
    install_tensorrt(folder, request.param)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        patch.setenv("PYTHONPATH", ":".join(filter(None, sys.path)))
        show_driver(driver_folder, patch)
        body = {"compiler": f"hardware.accelerators.faking:{VERSIONS[request.param]}", "accelerator": "cuda"}
        yield type("Faked", (CompilerConformance,), body)()
    probing.clear_cache()


class TestFaked:
    @pytest.mark.parametrize("name", SUITE)
    def test_it_conforms(self, name: str, conformance: CompilerConformance) -> None:
        """Each test of the suite passes for the last version with an f16 flag, and one that reads f16 in the graph."""
        getattr(conformance, name)()


@pytest.fixture
def install(tmp_path: Path, gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], ModuleType]:
    """Return a function that installs a version of TensorRT into this process for the test."""

    def put(version: str) -> ModuleType:
        folder = tmp_path / f"installed-{version}"
        if not folder.exists():
            folder.mkdir()
            install_tensorrt(folder, version)
        monkeypatch.syspath_prepend(folder)
        spec = importlib.util.spec_from_file_location("tensorrt", folder / "tensorrt.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, "tensorrt", module)
        spec.loader.exec_module(module)
        return module

    return put


@pytest.fixture
def compile_it(install: Callable[[str], ModuleType], exported: Path, tmp_path: Path) -> Compile:
    """Return a function that compiles the exported network, by TensorRT 10 unless a test installed another version."""
    install("10.13.0")

    def compile_with(file: Path = exported, **options: Any) -> Program:
        small = NETWORKS["small_conv"]()
        return tensorrt.compile(
            Task(
                form="onnx",
                module=None,
                onnx=file,
                inputs=small.inputs,
                arrays=[np.ones((1, 3, 16, 16), np.float32)],
                batch_size=1,
                options=tensorrt.COMPILER.settle(options),
                threads=2,
                cache=tmp_path / "cache",
                tuning=Tuning(folder=tmp_path / "tuning"),
                accelerator="cuda",
            )
        )

    return compile_with


def compute_error(program: Program) -> float:
    (expected,) = run_reference(NETWORKS["small_conv"](), [np.ones((1, 3, 16, 16), np.float32)])
    (output,) = program.fetch(program.run())
    return relative_rmse(expected, output)


def test_a_call_waits_for_the_gpu_and_enqueueing_does_not(compile_it: Compile, gpu: FakeGpu) -> None:
    """A call takes a millisecond of the GPU's clock, and enqueueing none."""
    program = compile_it()
    assert program.enqueue is not None
    program.run()
    start_ns = gpu.clock_ns
    program.enqueue()
    enqueued = gpu.clock_ns - start_ns
    program.run()

    assert (0, 2_000_000) == (enqueued, gpu.clock_ns - start_ns)


def test_events_time_its_stream(compile_it: Compile) -> None:
    """Events measure the time of the engine, flushed or not, also as a graph."""
    for program in (compile_it(), compile_it(cuda_graph=True)):
        method = events.choose_method(program.enqueue, program.stream, gpu_timer="events", flush_l2=True)
        assert method.measure is not None
        assert method.prepare is not None
        method.prepare()

        assert pytest.approx(1e-3) == method.measure(4)


def test_a_graph_replaces_the_launches(compile_it: Compile, gpu: FakeGpu) -> None:
    """A call launches the graph once, the contract notes it, and the outputs stay correct."""
    program = compile_it(cuda_graph=True)
    gpu.pop_calls()
    program.run()
    calls = gpu.pop_calls()

    assert ["cuGraphLaunch", "cuStreamSynchronize"] == calls
    assert ("CUDA graph", "") == (program.contract.notes, compile_it().contract.notes)
    assert compute_error(program) < 1e-4


def test_an_engine_that_waits_is_no_graph(compile_it: Compile, monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine that waits is unsupported as a graph, with the reason."""
    monkeypatch.setenv("FAKE_TENSORRT", "wait")

    assert compute_error(compile_it()) < 1e-4
    with pytest.raises(UnsupportedError, match="cannot be recorded as a CUDA graph"):
        compile_it(cuda_graph=True)


def test_an_engine_is_built_once(compile_it: Compile) -> None:
    """The second compile loads the engine; other options build anew, at most with the timings of the same precision."""
    choices: list[dict[str, Any]] = [{}, {}, {"level": 5}, {"precision": "f16"}, {"cuda_graph": True}, {"level": 5}]
    facts = [compile_it(**options).facts for options in choices]
    outcomes = [{name: fact.get(name) for name in ("cache", "timing_cache")} for fact in facts]

    assert [
        {"cache": "miss", "timing_cache": "miss"},
        {"cache": "hit", "timing_cache": None},
        {"cache": "miss", "timing_cache": "hit"},
        {"cache": "miss", "timing_cache": "miss"},
        {"cache": "hit", "timing_cache": None},
        {"cache": "hit", "timing_cache": None},
    ] == outcomes


def test_what_is_loaded_is_what_was_built(compile_it: Compile, tmp_path: Path) -> None:
    """A loaded engine has the contract, facts, explanation and outputs of the built one, all from the cache."""
    cold, warm = compile_it(), compile_it()

    assert ("miss", "hit") == (cold.facts.pop("cache"), warm.facts.pop("cache"))
    cold.facts.pop("timing_cache")
    assert cold.facts == warm.facts
    assert cold.contract == warm.contract
    assert cold.explain() == warm.explain()
    np.testing.assert_array_equal(cold.fetch(cold.run()), warm.fetch(warm.run()))
    assert {".engine", ".timings"} == {path.suffix for path in (tmp_path / "cache").rglob("*") if path.is_file()}


@pytest.mark.parametrize("changed", ["version", "GPU", "engine", "nothing but the start of an engine"])
def test_an_engine_that_is_not_this_one_is_built_again(
    changed: str,
    compile_it: Compile,
    install: Callable[[str], ModuleType],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Engines of another TensorRT or GPU, unloadable engines and incomplete files are rebuilt."""
    compile_it()
    (engine,) = (tmp_path / "cache").rglob("*.engine")
    if changed == "version":
        install("10.14.1")
    elif changed == "GPU":
        monkeypatch.setenv("FAKE_CUDA_CAPABILITY", "90")
    elif changed == "engine":
        engine.write_bytes(engine.read_bytes().replace(b"fake-engine", b"what engine"))
    else:
        engine.write_bytes(engine.read_bytes()[:7])
    again, after = compile_it(), compile_it()

    assert ("miss", "hit") == (again.facts["cache"], after.facts["cache"])
    assert compute_error(after) < 1e-4


@pytest.mark.parametrize("content", [b"garbled", b"timings of another GPU "])
def test_timings_that_do_not_fit_are_made_anew(content: bytes, compile_it: Compile, tmp_path: Path) -> None:
    """Timings that TensorRT cannot read or rejects are replaced."""
    compile_it()
    (timings,) = (tmp_path / "cache").rglob("*.timings")
    timings.write_bytes(content)
    compile_it(level=0)

    assert timings.read_bytes().startswith(b"timings of this GPU ")


@pytest.mark.parametrize(("version", "converted"), [("10.13.0", False), ("11.4.0", True)])
def test_half_precision_is_flag_or_graph(
    version: str, converted: bool, compile_it: Compile, install: Callable[[str], ModuleType]
) -> None:
    """Both ways to f16 compute less exactly with unchanged inputs and outputs, and the facts report the way."""
    install(version)
    program = compile_it(precision="f16")
    (output,) = program.fetch(program.run())

    assert ("f16", converted) == (program.contract.precision, program.facts["converted_to_f16"])
    assert np.float32 == output.dtype
    assert compute_error(compile_it()) < 1e-6 < 1e-5 < compute_error(program) < 5e-2


def test_half_precision_without_a_converter_is_unsupported(
    compile_it: Compile, install: Callable[[str], ModuleType], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error has the install command if the package that converts to half precision is missing."""
    install("11.4.0")
    monkeypatch.setitem(sys.modules, "onnxruntime.transformers.float16", None)

    with pytest.raises(UnsupportedError, match=r"pip install 'ngbkit\[onnxruntime\]'"):
        compile_it(precision="f16")


@pytest.mark.parametrize("version", VERSIONS)
def test_a_graph_with_quantised_values_is_strongly_typed(
    version: str, compile_it: Compile, install: Callable[[str], ModuleType], exported: Path
) -> None:
    """The types of a file with QDQ nodes are those of the graph, in either version."""
    install(version)
    folder = exported.parent / f"quantised-{version}"
    folder.mkdir(exist_ok=True)
    batches = [{NETWORKS["small_conv"]().inputs[0].name: np.ones((1, 3, 16, 16), np.float32)}]
    quantisation = Quantisation(
        source=exported, module=None, target=folder / "quantised.onnx", batches=batches, threads=1
    )
    STATIC_TENSORRT.quantise(quantisation)
    program = compile_it(file=quantisation.target)

    assert compute_error(program) < 0.1


def test_other_values_are_fed(compile_it: Compile) -> None:
    """Values that are fed to a program replace those of its inputs on the GPU."""
    program = compile_it()
    (before,) = program.fetch(program.run())
    assert program.feed is not None
    program.feed([np.zeros((1, 3, 16, 16), np.float32)])
    (after,) = program.fetch(program.run())
    program.feed([np.ones((1, 3, 16, 16), np.float32)])
    (again,) = program.fetch(program.run())

    assert not np.array_equal(before, after)
    np.testing.assert_array_equal(before, again)


def test_tf32_is_on_where_it_is_asked_for(compile_it: Compile, tmp_path: Path) -> None:
    """TensorRT enables tf32 by default, but this compiler only on request."""
    compile_it()
    compile_it(precision="tf32")
    flags = {path.stem: path.read_bytes() for path in (tmp_path / "cache").rglob("*.timings")}

    assert {"f32": b"timings of this GPU []", "tf32": b'timings of this GPU ["TF32"]'} == flags


def test_tf32_is_refused_where_the_gpu_has_none(compile_it: Compile, monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU without tf32 refuses the precision."""
    monkeypatch.setenv("FAKE_CUDA_CAPABILITY", "75")

    with pytest.raises(UnsupportedError, match=r"tf32 needs compute capability 8\.0, but Fake GPU has 7\.5"):
        compile_it(precision="tf32")


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ("build", "TensorRT built no engine: Error Code 2: OutOfMemory"),
        ("load", "TensorRT cannot load the engine that it built: The engine plan file is not compatible"),
        ("context", r"TensorRT cannot create a context of its engine: .*\(out of memory\)"),
        ("address", "TensorRT rejects the address of its tensor"),
    ],
)
def test_what_goes_wrong_is_told_in_its_own_words(
    wrong: str, message: str, compile_it: Compile, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Messages include the errors of TensorRT's log, but not its warnings."""
    monkeypatch.setenv("FAKE_TENSORRT", wrong)
    with pytest.raises(RuntimeError, match=message) as caught:
        compile_it()

    assert "a warning" not in str(caught.value)


def test_a_call_that_cannot_be_enqueued_fails(compile_it: Compile, monkeypatch: pytest.MonkeyPatch) -> None:
    """A call that cannot be enqueued raises an error rather than take no time."""
    program = compile_it()
    monkeypatch.setenv("FAKE_TENSORRT", "enqueue")

    with pytest.raises(RuntimeError, match="cannot enqueue the network: Error Code 3"):
        program.run()


@pytest.mark.parametrize(
    ("layer", "fused"),
    [("conv1", False), ("conv1 + relu1", True), ("{ForeignNode[norm.weight...add_3]}", True), ("Reformat(x)", False)],
)
def test_fused_layers_are_told_by_their_names(layer: str, fused: bool) -> None:
    """A layer is fused if its name joins several, or has the first and the last."""
    assert tensorrt._is_fused(layer) is fused


@pytest.mark.parametrize("options", [{}, {"cuda_graph": True}], ids=["streamed", "graph"])
def test_layers_are_profiled(options: dict[str, Any], compile_it: Compile) -> None:
    """Each layer has its seconds in each call, and the nodes that the engine's metadata lists for it."""
    program = compile_it(**options)
    assert program.profile is not None
    opened = program.profile()
    for _ in range(2):
        opened.run()
        opened.finish()
    profile = opened.read()

    assert (2, len(profile.kernels)) == profile.seconds.shape
    assert pytest.approx(2.5e-4) == profile.seconds.max() == profile.seconds.min()
    assert (0, 1) == profile.kernels[0].nodes
    assert {*range(len(profile.nodes))} == {node for kernel in profile.kernels for node in kernel.nodes}
    assert bool(options) is bool(profile.notes)


SOURCE = SourceGraph(
    nodes=tuple(
        SourceNode(name=name, operator=operator, inputs=(index - 1,) if index else ())
        for index, (name, operator) in enumerate(
            [("conv[1]", "Conv"), ("relu", "Relu"), ("sig", "Sigmoid"), ("mul", "Mul"), ("fc", "Gemm"), ("add", "Add")]
        )
    ),
    names={name: index for index, name in enumerate(["conv[1]", "relu", "sig", "mul", "fc", "add"])} | {"sum": 5},
)


@pytest.mark.parametrize(
    ("layer", "nodes"),
    [
        ("conv[1] + relu", (0, 1)),
        ("PWN(PWN(sig), mul)", (2, 3)),
        ("{ForeignNode[fc...add]}", (4, 5)),
        ("node_of_sum", (5,)),
        ("Reformatting CopyNode for Input Tensor 0 to conv[1] + relu", ()),
        (
            {"Name": "__myl_Fc", "Metadata": "[ONNX Layer: conv[1]]\x1f[ONNX Layer: relu]\x1e[ONNX Layer: fc]"},
            (0, 1, 4),
        ),
        ({"Name": "copy", "LayerType": "Reformat", "Metadata": ""}, ()),
    ],
)
def test_layers_have_the_nodes_of_their_metadata_or_names(layer: Any, nodes: tuple[int, ...]) -> None:
    """A layer has the nodes in its metadata, or else those that its name joins; a copy has none."""
    (executed,) = profiler.list_executed([layer], SOURCE)

    assert nodes == executed.claims
    assert executed.moves is not bool(nodes)


def test_reported_layers_that_the_engine_does_not_list_are_counted() -> None:
    """A layer that only the profiler reports is a kernel; one of several calls that lacks it has no seconds of it."""
    calls = [profiler.number_layers([("fc", 1.0), ("fc", 2.0), ("extra", 4.0)]), profiler.number_layers([("fc", 1.0)])]
    profile = profiler.build_profile(SOURCE, ["fc", "fc"], calls, graph=False)

    assert ["fc", "fc", "extra"] == [kernel.name for kernel in profile.kernels]
    assert "unmapped" == profile.kernels[2].role
    np.testing.assert_allclose([[1e-3, 2e-3, 4e-3], [1e-3, np.nan, np.nan]], profile.seconds)
