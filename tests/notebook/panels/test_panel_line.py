"""The line that a panel composes, and the cell that runs the same sweep."""

from dataclasses import replace
from pathlib import Path

import pytest

from ngbkit import options
from ngbkit.commands import arguments
from ngbkit.commands.parser import build_parser, parse
from ngbkit.commands.run import COMMAND
from ngbkit.errors import UnknownNameError, UsageError
from ngbkit.notebook.panels.line import Line
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
