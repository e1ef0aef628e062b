"""Notebook cells: parsed on the client, executed on the device, their errors reported by their own lines."""

from __future__ import annotations

import linecache
import sys
from importlib import import_module
from pathlib import Path
from textwrap import dedent

import numpy as np
import pytest
import torch

from ngbkit import options
from ngbkit.errors import WorkloadError
from ngbkit.workloads import cell
from ngbkit.workloads.base import BATCH, Network, TensorSpec, Workload

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
    """A cell with a module is one workload without factors, built in eval mode."""
    (workload,) = cell.from_source(LINE, name="line", factors=("width",))
    network = cell.build(workload, {})

    assert ("line", (), "cell") == (workload.name, workload.takes, workload.source)
    assert [TensorSpec(name="input", shape=(BATCH, 4))] == network.inputs
    assert not network.module.training


def test_a_cell_with_a_function_is_built_at_its_factors() -> None:
    """Factors without a default must be swept; defaults also apply to the shape of the input."""
    (workload,) = cell.from_source(STACK)

    swept, default = cell.build(workload, {"width": 3, "depth": 5}), cell.build(workload, {"width": 3})

    assert (("width", "depth"), ("depth",)) == (workload.takes, workload.optional)
    assert (5, (BATCH, 5, 3)) == (len(swept.module), swept.inputs[0].shape)
    assert (2, (BATCH, 2, 3)) == (len(default.module), default.inputs[0].shape)


def test_models_are_one_workload_per_key() -> None:
    """Each is built by its key, and has its own inputs if they are a dict by key."""
    workloads = cell.from_source(
        "import torch\n"
        "models = {'small': torch.nn.Linear(4, 2), 'wide': lambda width: torch.nn.Linear(width, 2)}\n"
        "input_shape = {'small': (4,), 'wide': lambda width: (width,)}\n"
    )
    networks = [cell.build(workload, dict.fromkeys(workload.takes, 9)) for workload in workloads]

    assert ["small", "wide"] == [workload.name for workload in workloads]
    assert [(), ("width",)] == [workload.takes for workload in workloads]
    assert [(BATCH, 4), (BATCH, 9)] == [network.inputs[0].shape for network in networks]


def test_the_rows_of_inputs_are_fed() -> None:
    """Token ids are fed unchanged."""
    network = build(LOOKUP)

    assert [TensorSpec(name="input", shape=(BATCH, 2), dtype="int64")] == network.inputs
    assert [[6, 5], [4, 3]] == network.examples["input"].tolist()


def test_a_cell_is_sent_as_plain_json_and_built_alike_everywhere() -> None:
    """Two builds have the same weights, whichever generator the cell uses; another seed gives other weights."""
    source = (
        "import numpy, random, torch\n"
        "model = torch.nn.Linear(2, 2)\n"
        "model.more = torch.nn.Parameter(torch.tensor([random.random(), numpy.random.rand()]))\n"
        "input_shape = 2\n"
    )
    (workload,) = cell.from_source(source)
    received = Workload.from_json(workload.to_json())

    first, second = (cell.build(received, {}).module.state_dict() for _ in range(2))
    with options.set_options(seed=1):
        reseeded = cell.build(received, {}).module.state_dict()

    assert workload == received
    assert all(torch.equal(value, second[name]) for name, value in first.items())
    assert not any(torch.equal(value, reseeded[name]) for name, value in first.items())


def test_constants_are_redrawn_after_lazy_layers_are_materialised() -> None:
    """The statistics of a BatchNorm behind a lazy layer vary."""
    network = build("""
        from torch import nn
        model = nn.Sequential(nn.LazyConv2d(4, 3), nn.BatchNorm2d(4))
        input_shape = (3, 8, 8)
    """)

    assert (4, 3, 3, 3) == network.module[0].weight.shape
    assert len(network.module[1].running_var.unique()) > 1


def test_inputs_by_name_reach_their_arguments() -> None:
    """A dict of inputs can skip an optional argument."""
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
        ("model = 1\0", "invalid syntax in the cell"),
    ],
)
def test_an_incomplete_cell_is_rejected_by_the_client(source: str, message: str) -> None:
    """The error shows a complete cell."""
    with pytest.raises(WorkloadError, match=message):
        cell.from_source(source)


@pytest.mark.parametrize(
    ("source", "line"),
    [("x = 1\nmodel = (", "model = ("), ("x = 1\nreturn 5", "return 5"), ("x = 1\n%time 2", "%time 2")],
)
def test_a_syntax_error_shows_the_cells_own_line(source: str, line: str) -> None:
    """The traceback contains the line and its number in the cell."""
    with pytest.raises(WorkloadError, match=r"invalid syntax in the cell: .* \(line 2\)\.$") as caught:
        cell.from_source(source)

    assert 'File "<ngbench cell>", line 2' in caught.value.traceback
    assert line in caught.value.traceback


def failing(source: str, **factors: int) -> WorkloadError:
    with pytest.raises(WorkloadError) as caught:
        build(source, **factors)
    return caught.value


def test_the_traceback_of_a_cell_starts_in_the_cell() -> None:
    """The traceback of a cell has the cell's lines and none of ngbkit's frames."""
    error = failing("import json\ndef model(width):\n    return json.loads('{' * width)\ninput_shape = (4,)\n", width=2)

    assert "the cell raised JSONDecodeError: " in str(error)
    assert " (line 3)." in str(error)
    assert 'Traceback (most recent call last):\n  File "<ngbench cell>", line 3, in model\n' in error.traceback
    assert "return json.loads('{' * width)" in error.traceback
    assert "json/decoder.py" in error.traceback
    assert "ngbkit" not in error.traceback
    assert linecache.getline("<ngbench cell>", 2) == "def model(width):\n"


def test_a_name_of_the_notebook_is_explained() -> None:
    """A cell cannot use the names of other cells."""
    error = failing("model = Net()\ninput_shape = (4,)")

    assert "NameError: name 'Net' is not defined (line 1). A cell runs on the device with" in str(error)


def test_invalid_inputs_are_reported_with_the_error_of_the_model() -> None:
    """The error shows the inputs, and the traceback the lines of forward()."""
    error = failing("""
        import torch
        class model(torch.nn.Module):
            def forward(self, x):
                return x @ torch.ones(5, 2)
        input_shape = (4,)
    """)

    assert "invalid inputs of model: fed x float32 (2, 4), it raised RuntimeError: " in str(error)
    assert "shapes cannot be multiplied (2x4 and 5x2)" in str(error)
    assert "return x @ torch.ones(5, 2)" in error.traceback


@pytest.mark.parametrize(
    ("source", "factors", "message"),
    [
        ("model = 5\ninput_shape = 4", {}, "invalid model model: got a int; expected a torch.nn.Module"),
        ("def model(width): return [width]\ninput_shape = 4", {"width": 3}, r"model\(width=3\) returned a list"),
        ("def model(width): return 1/0\ninput_shape = 4", {"width": 3}, "ZeroDivisionError"),
        (
            "raise SystemExit(3)\nmodel = input_shape = 4",
            {},
            r"the cell raised SystemExit: 3 .*\. It runs with",
        ),
        ("if 0:\n model = 1\ninput_shape = 4", {}, "ran without binding `model`"),
        (
            "import torch\nmodel = torch.nn.ReLU()\nif 0:\n inputs = 1",
            {},
            "ran without binding `inputs` or `input_shape`",
        ),
        ("import torch\nmodel = torch.nn.ReLU()\ninput_shape = 'x'", {}, "invalid input_shape: got 'x'"),
        (
            "import torch\nmodel = torch.nn.ReLU()\ninput_shape = lambda width: 4",
            {},
            "invalid arguments of input_shape: got width; expected factors",
        ),
        ("from torch.nn import ReLU\nmodel = (ReLU(), 0)[0]\ninput_shape = 4", {"width": 1}, r"def model\(width\)"),
        ("import torch\nclass model(torch.nn.Module):\n def forward(self, x): pass\ninput_shape = 4", {}, "no tensor"),
        (
            "import torch\nmodels = {'a': torch.nn.ReLU()}\ninput_shape = 4\ndel models",
            {},
            "ran without binding `models`",
        ),
    ],
)
def test_the_names_that_a_cell_binds_are_checked(source: str, factors: dict[str, int], message: str) -> None:
    """The error reports the value received and the valid ones."""
    with pytest.raises(WorkloadError, match=message):
        build(source, **factors)


def test_a_file_is_a_cell_with_a_name(tmp_path: Path) -> None:
    """A path that ends in .py is parsed like a cell, and its tracebacks name the file."""
    path = tmp_path / "line.py"
    path.write_text(LINE + "\nif __name__ == '__main__':\n    raise SystemExit('not to be run')\n")

    workload = cell.parse(str(path))

    assert ("line", "line.py") == (workload.name, workload.spec["filename"])
    assert (BATCH, 4) == cell.build(workload, {}).inputs[0].shape
    assert [str(path)] == list(cell.SOURCE.complete(str(tmp_path / "l")))
    assert cell.parse("resnet18") is None


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "unreadable file .*net.py: .*No such file"),
        ("models = {'a': 1, 'b': 2}\ninputs = 1", r"defines several models \(a, b\)"),
        ("x = (", r"invalid syntax in net\.py: .* \(line 1\)"),
    ],
)
def test_an_invalid_file_is_rejected(tmp_path: Path, content: str | None, message: str) -> None:
    """A missing file, several models and a syntax error are rejected."""
    path = tmp_path / "net.py"
    if content is not None:
        path.write_text(content)

    with pytest.raises(WorkloadError, match=message):
        cell.parse(str(path))


def test_a_file_has_the_arguments_of_one_that_is_run_alone(tmp_path: Path) -> None:
    """A file that parses its command line finds its own path and no more, and an error names the file."""
    path = tmp_path / "net.py"
    parsed = "import argparse\nargparse.ArgumentParser().parse_args()\nimport sys\n"
    path.write_text(f"{LINE}\n{parsed}assert sys.argv == [__file__]\nmodel.width\n")
    before = list(sys.argv)

    with pytest.raises(WorkloadError, match=r"^net\.py raised AttributeError: .* \(line \d+\)\.$"):
        cell.build(cell.parse(str(path)), {})

    assert before == sys.argv


def write_package(folder: Path) -> Path:
    """Write a package with a network, which uses its own file, a module beside it, and another of its package."""
    folder.mkdir()
    (folder / "__init__.py").touch()
    (folder / "helper.py").write_text("width = 4\n")
    (folder / "blocks.py").write_text("from .helper import width\n")
    (folder / "rows.txt").write_text("2")
    path = folder / "my net.py"
    path.write_text(
        dedent("""
            import pickle, torch
            from dataclasses import dataclass
            from pathlib import Path
            import helper
            from .blocks import width
            @dataclass
            class Shape:
                rows: int
            rows = int((Path(__file__).parent / "rows.txt").read_text())
            shape = pickle.loads(pickle.dumps(Shape(rows=rows)))
            model = torch.nn.Linear(width * helper.width, shape.rows)
            input_shape = (width * helper.width,)
            if __name__ == "__main__":
                raise SystemExit("run as a program")
        """)
    )
    return path


def test_a_file_imports_what_is_beside_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file imports modules of its own folder, not of the working folder."""
    path = write_package(tmp_path / "nets")
    (tmp_path / "helper.py").write_text("width = 1\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend("")
    helper = import_module("helper")
    entries = list(sys.path)
    network = cell.build(cell.parse("nets/my net.py"), {})

    assert (16, 2) == (network.module.in_features, network.module.out_features)
    assert (helper, entries) == (sys.modules["helper"], sys.path)
    assert "nets" not in sys.modules
    assert path.is_file()


def test_files_of_other_folders_import_their_own_modules(tmp_path: Path) -> None:
    """Files of two folders each import their own module of the same name."""
    widths = []
    for width in (3, 5):
        folder = tmp_path / f"nets{width}"
        folder.mkdir()
        (folder / "helper.py").write_text(f"width = {width}\n")
        (folder / "net.py").write_text(
            "import torch\nfrom helper import width\nmodel = torch.nn.Linear(width, 2)\ninput_shape = (width,)\n"
        )
        widths.append(cell.build(cell.parse(str(folder / "net.py")), {}).module.in_features)

    assert [3, 5] == widths
