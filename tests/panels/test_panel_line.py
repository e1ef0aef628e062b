"""The line that a panel composes, and the cell that runs the same sweep."""

from dataclasses import replace
from pathlib import Path

import pytest
from onnxgraphs import residual

from ngbkit import options
from ngbkit.commands import arguments
from ngbkit.commands.parser import build_parser, parse
from ngbkit.commands.run import COMMAND
from ngbkit.errors import UnknownNameError, UsageError
from ngbkit.panels.line import Line
from ngbkit.sweep.parsing import split_words

BLOCKS = Line(
    workloads=("blocks.conv",),
    compilers=("identity", 'openvino{"hint":"throughput"}'),
    batch_sizes="1, 4",
    factors="width=8,16 depth=1:3",
    repeats="20",
    more="--threads 2",
)


def test_the_cell_is_the_magics_line():
    """The cell is the line as a user would type it."""
    expected = (
        '%ngbench blocks.conv -c identity,openvino{"hint":"throughput"} -b 1,4 --factor width=8,16 --factor depth=1:3 '
        "-r 20 --threads 2 -o ds"
    )

    assert expected == BLOCKS.to_cell()


def test_the_cell_has_the_same_trials():
    """The parser of the magic reads the sweep that the panel counts."""
    words = split_words(BLOCKS.to_cell().removeprefix("%ngbench "))

    typed = arguments.to_sweep(parse(build_parser("%ngbench", COMMAND.magic_arguments), words))

    assert [trial.id for trial in typed.trials()] == [trial.id for trial in BLOCKS.to_sweep().trials()]
    assert 2 * 2 * 6 == len(typed)


def test_the_default_device_is_not_named():
    """The line omits the kernel's default device and names any other."""
    with options.set_options(device="orin"):
        line = Line(workloads=("resnet18",))

        assert ("orin",) == line.devices
        assert "-d" not in line.to_words()
        assert ["-d", "cpu"] == replace(line, devices=("cpu",)).to_words()[-2:]


def test_a_module_of_the_notebook_is_counted_and_not_exported(mlp_file: Path):
    """A module of the notebook counts as a workload with the name of its variable."""
    line = replace(BLOCKS, workloads=("mine", str(mlp_file)), factors="", more="")

    assert {"mine"} < {trial.workload for trial in line.to_sweep(modules={"mine"}).trials()}
    assert 2 * 2 * 2 == len(line.to_sweep(modules={"mine"}))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"workloads": ()}, "missing a network"),
        ({"precision": "1%"}, "samples and precision exclude each other"),
        ({"out": "my data"}, "invalid variable name"),
        ({"batch_sizes": "one"}, "batch size"),
        ({"more": "--treads 2"}, "--threads"),
    ],
)
def test_an_invalid_line_is_an_error(changes, message):
    """The errors are those of the magic."""
    line = replace(BLOCKS, **changes)

    with pytest.raises(UsageError, match=message):
        _ = line.to_text(), line.to_sweep()


def test_an_unknown_compiler_is_named():
    """The error suggests the nearest name."""
    with pytest.raises(UnknownNameError, match="openvino"):
        replace(BLOCKS, compilers=("openvina",)).to_sweep()


def test_a_line_is_read_back():
    """A pasted line fills the fields, and the fields write the same line."""
    assert replace(BLOCKS, batch_sizes="1,4") == Line.from_text(BLOCKS.to_cell())
    assert Line(workloads=("resnet18",)) == Line.from_text("resnet18")


@pytest.mark.parametrize(
    ("text", "field", "value"),
    [
        ("resnet18 -b1,4", "batch_sizes", "1,4"),
        ("resnet18 --batch-sizes=1 -b 8", "batch_sizes", "1,8"),
        ("resnet18 -c identity -c openvino{hint:latency},tvm", "compilers", ("identity", "openvino{…}", "tvm")),
        ("resnet18 -d cpu,orin", "devices", ("cpu", "orin")),
        ("resnet18 --note 'a first try' --together", "more", "--note 'a first try' --together"),
        ("resnet18 --background", "more", ""),
    ],
)
def test_every_form_of_an_option_is_read(text: str, field: str, value: object):
    """Short, long, joined and repeated options fill the same fields; others stay as they are."""
    got = getattr(Line.from_text(text), field)
    if field == "compilers":
        got = tuple(label.partition("{")[0] + "{…}" * ("{" in label) for label in got)

    assert value == got


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("%ngruns --resume x", "invalid line: got %ngruns; expected %ngbench"),
        ("resnet18 --treads 2", "Did you mean --threads"),
        ("resnet18 -b", "missing a value: -b is the last word"),
        ("resnet18 -c openvino{", "never closed"),
    ],
)
def test_a_line_that_is_none_is_refused(text: str, message: str):
    """An error of a pasted line names what came, and what is valid."""
    with pytest.raises(UsageError, match=message):
        Line.from_text(text)


def test_each_field_has_its_own_error():
    """An error belongs to the field that causes it, whatever the other fields are."""
    line = Line(
        workloads=("resnet1",), compilers=("idenity",), batch_sizes="x", repeats="-3", out="3x", more="--treads"
    )
    errors = line.find_errors()

    assert {"workloads", "compilers", "batch_sizes", "repeats", "out", "more"} == set(errors)
    assert "Did you mean resnet18" in errors["workloads"]
    assert {} == Line(workloads=("mine",)).find_errors({"mine"})
    assert {"factors"} == set(Line(workloads=("blocks.conv",)).find_errors())
    assert {"line"} == set(replace(Line(workloads=("resnet18",)), repeats="5", precision="1%").find_errors())


def test_the_factors_of_the_networks_are_fields():
    """Each factor that a network takes has its values, and a changed one is written."""
    line = Line(workloads=("blocks.conv", "resnet18"), factors="width=8")

    assert {"width": "8", "depth": "", "size": "", "kernel": ""} == {
        name: factor.text for name, factor in line.list_factors().items()
    }
    assert ["size", "kernel"] == [name for name, factor in line.list_factors().items() if factor.is_optional]
    assert "width=8 depth=1:3" == line.with_factor("depth", "1:3").factors
    assert "" == line.with_factor("width", "").factors


def test_files_of_one_name_have_their_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A panel distinguishes files of the same name by their folders, as the shell does."""
    monkeypatch.chdir(tmp_path)
    for name in ("a", "b"):
        Path(name).mkdir()
        residual(Path(), 8, 1).rename(f"{name}/model.onnx")
    line = Line(workloads=("a/model.onnx", "b/model.onnx"))

    assert ["a/model", "b/model"] == [workload.name for workload in line.to_sweep().workloads]
