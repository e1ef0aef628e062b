"""TensorRT, held to the protocol where it works; and everywhere, the same code on a GPU that is not there."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hardware.accelerators.faking import FakeGpu, install_tensorrt, show_driver

from ngbkit.compilers import tensorrt
from ngbkit.compilers.base import Program, Task, Tuning
from ngbkit.errors import UnsupportedError
from ngbkit.hardware.accelerators import events, probing
from ngbkit.testing import NETWORKS, CompilerConformance, relative_rmse, run_reference

VERSIONS = {"10.13.0": "TENSORRT_10", "11.4.0": "TENSORRT_11"}
SUITE = [
    name for name in vars(CompilerConformance) if name.startswith("test_") and name != "test_says_why_it_is_unavailable"
]
Compile = Callable[..., Program]


class TestTensorRt(CompilerConformance):
    compiler = "tensorrt"
    accelerator = "cuda"
    required = False  # its packages are on an index of NVIDIA's own


@pytest.fixture(scope="module", params=VERSIONS)
def conformance(
    request: pytest.FixtureRequest, driver_folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[CompilerConformance]:
    """The suite for a TensorRT that its children find beside a driver."""
    folder = tmp_path_factory.mktemp("installed")
    install_tensorrt(folder, request.param)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        patch.setenv("PYTHONPATH", ":".join(filter(None, sys.path)))
        show_driver(driver_folder, patch)
        body = {"compiler": f"accelerators.faking:{VERSIONS[request.param]}", "accelerator": "cuda"}
        yield type("Faked", (CompilerConformance,), body)()
    probing.forget()


@pytest.mark.parametrize("name", SUITE)
def test_it_conforms(name: str, conformance: CompilerConformance) -> None:
    """Each test of the suite, for the last version with a flag for f16 and for one that reads it in the graph."""
    getattr(conformance, name)()


@pytest.fixture
def install(tmp_path: Path, gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], ModuleType]:
    """Puts a TensorRT of a version into this process, for the test."""

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
    """Compiles the exported network with these options, by TensorRT 10 where a test has installed no other."""
    install("10.13.0")

    def compile_with(**options: Any) -> Program:
        small = NETWORKS["small_conv"]()
        return tensorrt.compile(
            Task(
                form="onnx",
                module=None,
                onnx=exported,
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


def _error(program: Program) -> float:
    (expected,) = run_reference(NETWORKS["small_conv"](), [np.ones((1, 3, 16, 16), np.float32)])
    (found,) = program.fetch(program.run())
    return relative_rmse(expected, found)


def test_a_call_waits_for_the_gpu_and_enqueueing_does_not(compile_it: Compile, gpu: FakeGpu) -> None:
    """A millisecond of the GPU's clock has passed after a call, and none after what only puts it on the stream."""
    program = compile_it()
    assert program.enqueue is not None
    program.run()
    began = gpu.clock_ns
    program.enqueue()
    enqueued = gpu.clock_ns - began
    program.run()

    assert (0, 2_000_000) == (enqueued, gpu.clock_ns - began)


def test_events_time_its_stream(compile_it: Compile) -> None:
    """What is timed by events is what the engine takes, flushed or not, also as a graph."""
    for program in (compile_it(), compile_it(cuda_graph=True)):
        method = events.choose(program.enqueue, program.stream, gpu_timer="events", flush_l2=True)
        assert method.measure is not None
        assert method.before is not None
        method.before()

        assert pytest.approx(1e-3) == method.measure(4)


def test_a_graph_replaces_the_launches(compile_it: Compile, gpu: FakeGpu) -> None:
    """A call is one launch of the graph, the contract says so, and the outputs are right after each."""
    program = compile_it(cuda_graph=True)
    gpu.calls()
    program.run()
    calls = gpu.calls()

    assert ["cuGraphLaunch", "cuStreamSynchronize"] == calls
    assert ("CUDA graph", "") == (program.contract.notes, compile_it().contract.notes)
    assert _error(program) < 1e-4


def test_an_engine_that_waits_is_no_graph(compile_it: Compile, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is unsupported, with the reason."""
    monkeypatch.setenv("FAKE_TENSORRT", "wait")

    assert _error(compile_it()) < 1e-4
    with pytest.raises(UnsupportedError, match="cannot be recorded as a CUDA graph"):
        compile_it(cuda_graph=True)


def test_an_engine_is_built_once(compile_it: Compile) -> None:
    """The second compile loads it; other options build anew, with the timings of the same precision at most."""
    choices: list[dict[str, Any]] = [{}, {}, {"level": 5}, {"precision": "f16"}, {"cuda_graph": True}, {"level": 5}]
    facts = [compile_it(**options).facts for options in choices]
    kept = [{name: one.get(name) for name in ("cache", "timing_cache")} for one in facts]

    assert [
        {"cache": "miss", "timing_cache": "miss"},
        {"cache": "hit", "timing_cache": None},
        {"cache": "miss", "timing_cache": "hit"},
        {"cache": "miss", "timing_cache": "miss"},
        {"cache": "hit", "timing_cache": None},
        {"cache": "hit", "timing_cache": None},
    ] == kept


def test_what_is_loaded_is_what_was_built(compile_it: Compile, tmp_path: Path) -> None:
    """In contract, facts, explanation and outputs; and all of it is in the cache."""
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
    """One of another TensorRT or GPU, one that TensorRT does not load, and one that is not whole."""
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
    assert _error(after) < 1e-4


@pytest.mark.parametrize("content", [b"garbled", b"timings of another GPU "])
def test_timings_that_do_not_fit_are_made_anew(content: bytes, compile_it: Compile, tmp_path: Path) -> None:
    """Those that TensorRT cannot read, and those that it does not take."""
    compile_it()
    (timings,) = (tmp_path / "cache").rglob("*.timings")
    timings.write_bytes(content)
    compile_it(level=0)

    assert timings.read_bytes().startswith(b"timings of this GPU ")


@pytest.mark.parametrize(("version", "converted"), [("10.13.0", False), ("11.4.0", True)])
def test_half_precision_is_flag_or_graph(
    version: str, converted: bool, compile_it: Compile, install: Callable[[str], ModuleType]
) -> None:
    """It computes less exactly by either way, inputs and outputs stay as they were, and the facts tell the way."""
    install(version)
    program = compile_it(precision="f16")
    (found,) = program.fetch(program.run())

    assert ("f16", converted) == (program.contract.precision, program.facts["converted_to_f16"])
    assert np.float32 == found.dtype
    assert _error(compile_it()) < 1e-6 < 1e-5 < _error(program) < 5e-2


def test_half_precision_without_a_converter_is_unsupported(
    compile_it: Compile, install: Callable[[str], ModuleType], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What converts the graph is another package, and the message says how to get it."""
    install("11.4.0")
    monkeypatch.setitem(sys.modules, "onnxruntime.transformers.float16", None)

    with pytest.raises(UnsupportedError, match=r"pip install 'ngbkit\[onnxruntime\]'"):
        compile_it(precision="f16")


def test_tf32_is_on_where_it_is_asked_for(compile_it: Compile, tmp_path: Path) -> None:
    """TensorRT has it on by default, and this compiler has not."""
    compile_it()
    compile_it(precision="tf32")
    flags = {path.stem: path.read_bytes() for path in (tmp_path / "cache").rglob("*.timings")}

    assert {"f32": b"timings of this GPU []", "tf32": b'timings of this GPU ["TF32"]'} == flags


def test_tf32_is_refused_where_the_gpu_has_none(compile_it: Compile, monkeypatch: pytest.MonkeyPatch) -> None:
    """A column that says tf32 has it."""
    monkeypatch.setenv("FAKE_CUDA_CAPABILITY", "75")

    with pytest.raises(UnsupportedError, match=r"Fake GPU has compute capability 7\.5, and tf32 came with 8\.0"):
        compile_it(precision="tf32")


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ("build", "TensorRT built no engine: Error Code 2: OutOfMemory"),
        ("load", "TensorRT does not load the engine that it has built: The engine plan file is not compatible"),
        ("context", r"TensorRT could not make a context of its engine: .*\(out of memory\)"),
        ("address", "TensorRT does not take an address for its tensor"),
    ],
)
def test_what_goes_wrong_is_told_in_its_own_words(
    wrong: str, message: str, compile_it: Compile, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The errors of its log are in the message, its warnings are not."""
    monkeypatch.setenv("FAKE_TENSORRT", wrong)
    with pytest.raises(RuntimeError, match=message) as caught:
        compile_it()

    assert "a warning" not in str(caught.value)


def test_a_call_that_cannot_be_enqueued_fails(compile_it: Compile, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rather than take no time."""
    program = compile_it()
    monkeypatch.setenv("FAKE_TENSORRT", "enqueue")

    with pytest.raises(RuntimeError, match="could not enqueue the network: Error Code 3"):
        program.run()


@pytest.mark.parametrize(
    ("layer", "fused"),
    [("conv1", False), ("conv1 + relu1", True), ("{ForeignNode[norm.weight...add_3]}", True), ("Reformat(x)", False)],
)
def test_fused_layers_are_told_by_their_names(layer: str, fused: bool) -> None:
    """A layer is several where its name joins them, or gives the first and the last."""
    assert tensorrt._is_fused(layer) is fused


@pytest.fixture
def asked(driver_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A driver and a place for libraries, as the processes see them that the probe sends to ask."""
    show_driver(driver_folder, monkeypatch)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", ":".join(filter(None, sys.path)))
    yield tmp_path
    probing.forget()


def test_the_probe_says_that_it_works(asked: Path) -> None:
    """With a driver, a GPU and a TensorRT that makes a builder."""
    install_tensorrt(asked, "11.4.0")

    assert "" == tensorrt.probe()


def test_the_probe_says_that_it_does_not_load(asked: Path) -> None:
    """With TensorRT's own error."""
    (asked / "tensorrt.py").write_text("raise ImportError('libnvinfer.so.11: cannot open shared object file')")

    assert "tensorrt is installed and does not load: " in tensorrt.probe()
    assert "ImportError: libnvinfer.so.11" in tensorrt.probe()


def test_the_probe_says_that_it_does_not_fit_the_driver(asked: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A TensorRT for a newer CUDA loads, and makes no builder."""
    install_tensorrt(asked, "11.4.0")
    monkeypatch.setenv("FAKE_TENSORRT", "builder")

    assert "TensorRT 11.4.0 does not work with this GPU and driver: CUDA initialization failure with error: 35" == (
        tensorrt.probe()
    )


def test_the_probe_says_that_there_is_no_gpu(asked: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And leaves TensorRT alone."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")

    assert "tensorrt needs one" in tensorrt.probe()
