"""What a notebook cell defines: read on the client, executed on the device, its errors told in its own lines."""

from __future__ import annotations

import linecache
from pathlib import Path
from textwrap import dedent

import numpy as np
import pytest
import torch

from ngbkit import options
from ngbkit.errors import WorkloadError
from ngbkit.workloads import cell
from ngbkit.workloads.base import Network, TensorSpec, Workload

LINE = """
import torch
model = torch.nn.Linear(4, 2)
input_shape = (4,)
"""
STACK = """
import torch
def model(width, depth=2):
    return torch.nn.Sequential(*[torch.nn.Linear(width, width) for _ in range(depth)])
input_shape = lambda depth, width: (depth, width)
"""
LOOKUP = """
import torch
model = torch.nn.EmbeddingBag(7, 3)
inputs = torch.tensor([[6, 5], [4, 3]])
"""


def build(source: str, **factors: int) -> Network:
    (workload,) = cell.from_source(dedent(source), factors=tuple(factors))
    return cell.build(workload, factors)


def test_a_cell_with_a_module_is_one_workload() -> None:
    """It takes no factor, and is built in eval mode on the inputs that it names."""
    (workload,) = cell.from_source(LINE, name="line", factors=("width",))
    network = cell.build(workload, {})

    assert ("line", (), "cell") == (workload.name, workload.takes, workload.source)
    assert [TensorSpec(name="input", shape=(4,))] == network.inputs
    assert not network.module.training


def test_a_cell_with_a_function_is_built_at_its_factors() -> None:
    """Factors without a default must be swept; the others keep theirs, which the shape of the input sees too."""
    (workload,) = cell.from_source(STACK)

    swept, default = cell.build(workload, {"width": 3, "depth": 5}), cell.build(workload, {"width": 3})

    assert (("width", "depth"), ("depth",)) == (workload.takes, workload.optional)
    assert (5, (5, 3)) == (len(swept.module), swept.inputs[0].shape)
    assert (2, (2, 3)) == (len(default.module), default.inputs[0].shape)


def test_models_are_one_workload_a_key() -> None:
    """Each is built by its key, on inputs of its own where they are given so."""
    workloads = cell.from_source(
        "import torch\n"
        "models = {'small': torch.nn.Linear(4, 2), 'wide': lambda width: torch.nn.Linear(width, 2)}\n"
        "input_shape = {'small': (4,), 'wide': lambda width: (width,)}\n"
    )
    networks = [cell.build(workload, dict.fromkeys(workload.takes, 9)) for workload in workloads]

    assert ["small", "wide"] == [workload.name for workload in workloads]
    assert [(), ("width",)] == [workload.takes for workload in workloads]
    assert [(4,), (9,)] == [network.inputs[0].shape for network in networks]


def test_rows_of_inputs_are_what_is_fed() -> None:
    """Token ids are fed as the cell has them."""
    network = build(LOOKUP)

    assert [TensorSpec(name="input", shape=(2,), dtype="int64")] == network.inputs
    assert [[6, 5], [4, 3]] == network.examples["input"].tolist()


def test_a_cell_travels_as_plain_json_and_is_built_alike_everywhere() -> None:
    """Two builds of what arrived have the same weights, whatever the cell draws them with; another seed has others."""
    source = (
        "import numpy, random, torch\n"
        "model = torch.nn.Linear(2, 2)\n"
        "model.more = torch.nn.Parameter(torch.tensor([random.random(), numpy.random.rand()]))\n"
        "input_shape = 2\n"
    )
    (workload,) = cell.from_source(source)
    arrived = Workload.from_json(workload.to_json())

    one, two = (cell.build(arrived, {}).module.state_dict() for _ in range(2))
    with options.set_options(seed=1):
        other = cell.build(arrived, {}).module.state_dict()

    assert workload == arrived
    assert all(torch.equal(value, two[name]) for name, value in one.items())
    assert not any(torch.equal(value, other[name]) for name, value in one.items())


def test_blank_values_are_drawn_and_lazy_ones_made() -> None:
    """BatchNorm of a cell's network tells outputs apart, and lazy layers know their size before that."""
    network = build("""
        from torch import nn
        model = nn.Sequential(nn.LazyConv2d(4, 3), nn.BatchNorm2d(4))
        input_shape = (3, 8, 8)
    """)

    assert (4, 3, 3, 3) == network.module[0].weight.shape
    assert len(network.module[1].running_var.unique()) > 1


def test_inputs_by_name_reach_their_arguments() -> None:
    """A dict of inputs passes an optional argument by."""
    network = build("""
        import torch
        class model(torch.nn.Module):
            def forward(self, ids, mask=None, scale=None):
                assert mask is None
                return ids * scale
        inputs = {"ids": torch.ones(2, 3, dtype=torch.int64), "scale": torch.full((2, 3), 2.0)}
    """)

    assert ["ids", "scale"] == [spec.name for spec in network.inputs]
    np.testing.assert_array_equal(np.full((2, 3), 2.0), network.module(torch.ones(2, 3), torch.full((2, 3), 2.0))[0])


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("input_shape = (4,)", r"neither `model` nor `models`.(?s:.)*model = torch.nn.Linear"),
        ("model = 1", r"neither `inputs` nor `input_shape`.(?s:.)*input_shape = \(4,\)"),
        ("model = 1\ninputs = 2\ninput_shape = 3", "both `inputs` and `input_shape`"),
        ("models = build()\ninputs = 1", "one literal dict"),
        ("model = 1\0", "does not parse"),
    ],
)
def test_a_cell_that_lacks_something_is_refused_before_it_travels(source: str, message: str) -> None:
    """The error shows a whole cell."""
    with pytest.raises(WorkloadError, match=message):
        cell.from_source(source)


@pytest.mark.parametrize(
    ("source", "line"),
    [("x = 1\nmodel = (", "model = ("), ("x = 1\nreturn 5", "return 5"), ("x = 1\n%time 2", "%time 2")],
)
def test_a_syntax_error_shows_the_cells_own_line(source: str, line: str) -> None:
    """The traceback holds the line and its number in the cell."""
    with pytest.raises(WorkloadError, match=r"does not parse: .*<ngbench cell>, line 2") as caught:
        cell.from_source(source)

    assert 'File "<ngbench cell>", line 2' in caught.value.traceback
    assert line in caught.value.traceback


def failing(source: str, **factors: int) -> WorkloadError:
    with pytest.raises(WorkloadError) as caught:
        build(source, **factors)
    return caught.value


def test_an_exception_in_the_cell_is_told_from_the_cells_own_file_onward() -> None:
    """Its traceback begins in the cell, with the cell's lines, and holds none of ngbkit's frames."""
    error = failing("import json\ndef model(width):\n    return json.loads('{' * width)\ninput_shape = (4,)\n", width=2)

    assert "the cell raised JSONDecodeError: " in str(error)
    assert "(<ngbench cell>, line 3)." in str(error)
    assert 'Traceback (most recent call last):\n  File "<ngbench cell>", line 3, in model\n' in error.traceback
    assert "return json.loads('{' * width)" in error.traceback
    assert "json/decoder.py" in error.traceback
    assert "ngbkit" not in error.traceback
    assert linecache.getline("<ngbench cell>", 2) == "def model(width):\n"


def test_a_name_of_the_notebook_is_explained() -> None:
    """A cell does not see what other cells define."""
    error = failing("model = Net()\ninput_shape = (4,)")

    assert "NameError: name 'Net' is not defined (<ngbench cell>, line 1). A cell runs on the device by itself" in str(
        error
    )


def test_inputs_that_do_not_fit_are_shown_with_the_models_error() -> None:
    """What was fed and what the model said, with the lines of its forward()."""
    error = failing("""
        import torch
        class model(torch.nn.Module):
            def forward(self, x):
                return x @ torch.ones(5, 2)
        input_shape = (4,)
    """)

    assert "do not fit model. It was fed x float32 (2, 4) and raised RuntimeError: " in str(error)
    assert "shapes cannot be multiplied (2x4 and 5x2)" in str(error)
    assert "return x @ torch.ones(5, 2)" in error.traceback


@pytest.mark.parametrize(
    ("source", "factors", "message"),
    [
        ("model = 5\ninput_shape = 4", {}, "model is a int; valid is a torch.nn.Module"),
        ("def model(width): return [width]\ninput_shape = 4", {"width": 3}, r"model\(width=3\) gave a list"),
        ("def model(width): return 1/0\ninput_shape = 4", {"width": 3}, "ZeroDivisionError"),
        ("raise SystemExit(3)\nmodel = input_shape = 4", {}, "the cell raised SystemExit: 3"),
        ("if 0:\n model = 1\ninput_shape = 4", {}, "left `model` unbound"),
        ("import torch\nmodel = torch.nn.ReLU()\nif 0:\n inputs = 1", {}, "left `inputs` and `input_shape` unbound"),
        ("import torch\nmodel = torch.nn.ReLU()\ninput_shape = 'x'", {}, "input_shape 'x' does not fit"),
        ("import torch\nmodel = torch.nn.ReLU()\ninput_shape = lambda width: 4", {}, "input_shape takes width, which"),
        ("from torch.nn import ReLU\nmodel = (ReLU(), 0)[0]\ninput_shape = 4", {"width": 1}, r"def model\(width\)"),
        ("import torch\nclass model(torch.nn.Module):\n def forward(self, x): pass\ninput_shape = 4", {}, "no tensor"),
        ("import torch\nmodels = {'a': torch.nn.ReLU()}\ninput_shape = 4\ndel models", {}, "left `models` unbound"),
    ],
)
def test_what_the_cell_leaves_behind_is_checked(source: str, factors: dict[str, int], message: str) -> None:
    """The error says what came and what is valid."""
    with pytest.raises(WorkloadError, match=message):
        build(source, **factors)


def test_a_file_is_a_cell_with_a_name(tmp_path: Path) -> None:
    """A word that ends in .py is read as a cell is, and its tracebacks name the file."""
    path = tmp_path / "line.py"
    path.write_text(LINE + "\nif __name__ == '__main__':\n    raise SystemExit('not to be run')\n")

    workload = cell.parse(str(path))

    assert ("line", "line.py") == (workload.name, workload.spec["filename"])
    assert (4,) == cell.build(workload, {}).inputs[0].shape
    assert [str(path)] == list(cell.complete(str(tmp_path / "l")))
    assert cell.parse("resnet18") is None


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "net.py cannot be read: .*No such file"),
        ("models = {'a': 1, 'b': 2}\ninputs = 1", r"defines several models \(a, b\)"),
        ("x = (", r"does not parse: .*net\.py, line 1"),
    ],
)
def test_a_file_that_is_no_workload_says_why(tmp_path: Path, content: str | None, message: str) -> None:
    """A missing file, several models, a syntax error."""
    path = tmp_path / "net.py"
    if content is not None:
        path.write_text(content)

    with pytest.raises(WorkloadError, match=message):
        cell.parse(str(path))
