"""Lower precisions are columns, with samples that calibrate them and bounds on their cost."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import onnx
import pytest

from ngbkit import Sweep, cli, options
from ngbkit.errors import NgbkitError, UsageError
from ngbkit.sweep.grid import Grid
from ngbkit.sweep.low_precision import Bound, list_absent
from ngbkit.workloads.base import RANDOM, Workload

SAMPLES = np.random.default_rng(0).random((8, 16), np.float32)


def test_each_compiler_has_a_column_for_each_of_its_precisions(mlp: Workload) -> None:
    """`precisions` expands compilers, and a label with a precision of its own stays."""
    labels = ["identity", 'onnxruntime{"optimization":"basic"}', 'openvino{"precision":"f16"}']
    sweep = Sweep(mlp, labels, precisions="f32,bf16,int8", calibrate=RANDOM)

    assert (
        "identity",
        'identity{"precision":"bf16"}',
        'identity{"precision":"int8"}',
        'onnxruntime{"optimization":"basic"}',
        'onnxruntime{"optimization":"basic","precision":"int8"}',
        'openvino{"precision":"f16"}',
    ) == sweep.compilers
    assert sweep == Grid.from_json(sweep.to_json()) or sweep.id == Grid.from_json(sweep.to_json()).id


def test_a_sweep_is_known_by_the_content_of_its_samples(mlp: Workload, tmp_path: Path) -> None:
    """Paths of samples, labelled or not, are no part of its id, and their values and labels are."""
    labelled = {"x": SAMPLES, "labels": np.arange(8)}
    np.savez(tmp_path / "labelled.npz", **labelled)
    first, second = (
        Sweep(mlp, calibrate={"x": SAMPLES}, evaluate=each) for each in (labelled, tmp_path / "labelled.npz")
    )
    other = Sweep(mlp, calibrate={"x": SAMPLES}, evaluate={**labelled, "labels": np.zeros(8, int)})

    assert first.id == second.id == Grid.from_json(first.to_json()).id
    assert first.id != other.id
    assert {"calibration", "evaluation"} <= first.to_json()["workloads"][0].keys()


def test_a_precision_that_a_compiler_lacks_is_told() -> None:
    """A sentence names each compiler without a column in a precision, and those that it has."""
    labels = ["torchscript", 'onnxruntime{"precision":"int8"}']

    assert ["no column of torchscript in int8: it has f32, tf32, f16, bf16"] == list(
        list_absent(labels, ["f32", "int8"])
    )


def test_a_sweep_without_lower_precisions_keeps_its_id(mlp: Workload) -> None:
    """Options of precision that are not used are no part of the description that recordings are found by."""
    description = Sweep(mlp).to_json()

    assert not {"precisions", "calibrate", "accept"} & description.keys()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"precisions": ["int8"], "compilers": ["torchscript"]}, "torchscript has f32, tf32, f16, bf16"),
        ({"precisions": ["int8"], "compilers": ["onnxruntime"]}, "without samples of mlp; expected samples that"),
        ({"accept": "agreement>=0.99"}, "without samples of mlp; expected samples by which"),
        ({"accept": "agreement>=0.99", "calibrate": RANDOM}, "without samples of mlp; expected samples by which"),
        ({"accept": "accuracy>=0.9", "calibrate": {"x": SAMPLES}}, "without labels of mlp; expected labels by which"),
        ({"evaluate": {"x": SAMPLES}}, "got x; expected an array labels or targets beside those of inputs"),
        ({"evaluate": {"x": SAMPLES, "labels": np.zeros(7)}}, "got 8 of x, 7 of labels; expected as many"),
        ({"accept": "agrement>=0.99"}, "unknown cost 'agrement'. Did you mean agreement?"),
        ({"accept": "agreement=0.99"}, "expected a cost and its bound, such as agreement>=0.99"),
        ({"calibrate": {"other": RANDOM}}, "unknown network of --calibrate 'other'"),
    ],
)
def test_an_option_that_cannot_be_met_is_refused(mlp: Workload, options: dict[str, object], message: str) -> None:
    """The error names the column or the bound, and what is missing."""
    with pytest.raises(NgbkitError, match=message.replace("?", r"\?")):
        Sweep(**{"workloads": mlp, **options})


def test_a_bound_is_parsed() -> None:
    """A bound has a cost, a direction and a number or a percentage."""
    bounds = [Bound.parse(text) for text in ("agreement >= 99%", "relative_error<=0.05")]

    assert ["agreement>=0.99", "relative_error<=0.05"] == list(map(str, bounds))
    assert [True, False, True, False] == [
        bounds[0].admits(0.99),
        bounds[0].admits(0.98),
        bounds[1].admits(0.05),
        bounds[1].admits(0.06),
    ]


BAD = {
    "another shape": (np.ones((8, 3)), r"got shape \(8, 3\) for input x; expected \(batch, 16\)"),
    "not a number": (np.full((8, 16), np.nan), "input x with 128 values that are NaN or infinite"),
    "constant": (np.full((8, 16), 0.5), "input x that is 0.5 throughout"),
    "one sample": (np.random.default_rng(0).random((1, 16)), "got a single sample; expected at least 2"),
    "one sample again": (np.tile(np.arange(16.0), (8, 1)), "got the same sample 8 times"),
    "text": (np.full((8, 16), "a"), "got object; expected float32"),
}


@pytest.mark.parametrize("case", BAD)
def test_samples_that_calibrate_nothing_are_refused(mlp: Workload, tmp_path: Path, case: str) -> None:
    """Each fault of a file of samples has a sentence of its own, before anything is measured."""
    array, message = BAD[case]
    np.savez(tmp_path / "samples.npz", x=array)

    with pytest.raises(NgbkitError, match=message):
        Sweep(mlp, calibrate=tmp_path / "samples.npz")


@pytest.mark.parametrize("case", BAD)
def test_a_shell_refuses_them_before_it_measures(
    mlp_file: Path, tmp_path: Path, case: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """`ngbkit run` ends with the same sentence, and leaves no run."""
    array, message = BAD[case]
    np.savez(tmp_path / "samples.npz", x=array)
    command = ["run", str(mlp_file), "-c", "onnxruntime", "--precisions", "int8", "--calibrate"]
    assert cli.INVALID == cli.main([*command, str(tmp_path / "samples.npz")])

    assert re.search(message, capsys.readouterr().err)
    assert not [*options.get_state_dir().rglob("journal.sqlite")]


def test_each_input_needs_its_samples(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A network of two inputs names the one without samples, and inputs of different numbers of them."""
    specs = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["batch", 16]) for name in "xzy"]
    nodes = [onnx.helper.make_node("Add", ["x", "z"], ["y"])]
    model = onnx.helper.make_model(
        onnx.helper.make_graph(nodes, "sum", specs[:2], specs[2:]),
        opset_imports=[onnx.helper.make_opsetid("", 20)],
        ir_version=10,
    )
    onnx.save(model, tmp_path / "sum.onnx")
    command = ["run", str(tmp_path / "sum.onnx"), "-c", "onnxruntime", "--precisions", "int8", "--calibrate"]
    np.savez(tmp_path / "half.npz", x=SAMPLES)
    np.savez(tmp_path / "fewer.npz", x=SAMPLES, z=SAMPLES[:5])

    assert cli.INVALID == cli.main([*command, str(tmp_path / "half.npz")])
    assert "got no array for input z; expected one for each of x, z" in capsys.readouterr().err
    assert cli.INVALID == cli.main([*command, str(tmp_path / "fewer.npz")])
    assert "got 8 of x, 5 of z; expected as many samples of each input" in capsys.readouterr().err


def test_samples_travel_with_their_network(mlp: Workload) -> None:
    """Samples are an artifact of the workload, whose id they are part of; arrays need no file."""
    samples = np.random.default_rng(0).random((8, 16), np.float32)
    (workload,) = Sweep(mlp, calibrate={"x": samples}).workloads

    assert workload.calibration in workload.artifacts
    assert mlp.id != workload.id
    with pytest.raises(UsageError, match="no such file"):
        Sweep(mlp, calibrate="missing.npz")
