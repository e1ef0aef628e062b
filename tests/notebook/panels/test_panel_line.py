"""The line that a panel stands for: what it asks for is what the cell that it gives asks for."""

from dataclasses import replace
from pathlib import Path

import pytest

from ngbkit import options
from ngbkit.commands import arguments
from ngbkit.commands.arguments import Parser
from ngbkit.errors import UnknownNameError, UsageError
from ngbkit.notebook.magics import TABLES
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
    """As one would type it."""
    expected = (
        '%ngbench blocks.conv -c identity,openvino{"hint":"throughput"} -b 1,4 --factor width=8,16 --factor depth=1:3 '
        "-r 20 --threads 2 -o ds"
    )

    assert expected == BLOCKS.cell()


def test_the_cell_asks_for_the_same_trials():
    """The magic's own parser reads of it the sweep that the panel counts."""
    parser = Parser(prog="%ngbench")
    for argument in TABLES["ngbench"]:
        parser.add_argument(*argument.flags, **argument.keywords)
    words = split_words(BLOCKS.cell().removeprefix("%ngbench "))

    typed = arguments.to_sweep(arguments.parse(parser, words))

    assert [trial.id for trial in typed.trials()] == [trial.id for trial in BLOCKS.sweep().trials()]
    assert 2 * 2 * 6 == len(typed)


def test_what_measures_where_it_is_told_nothing_is_not_told():
    """In the kernel of a device that is this device, and the machine itself has to be named."""
    with options.set_options(device="orin"):
        there = Line(workloads=("resnet18",))

        assert ("orin",) == there.devices
        assert "-d" not in there.words()
        assert ["-d", "cpu"] == replace(there, devices=("cpu",)).words()[-2:]


def test_a_module_of_the_notebook_is_counted_and_not_exported(mlp_file: Path):
    """It takes its place beside others, by its name."""
    line = replace(BLOCKS, workloads=("mine", str(mlp_file)), factors="", more="")

    assert {"mine"} < {trial.workload for trial in line.sweep(modules={"mine"}).trials()}
    assert 2 * 2 * 2 == len(line.sweep(modules={"mine"}))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"workloads": ()}, "pick a network"),
        ({"precision": "1%"}, "repeats and precision exclude each other"),
        ({"out": "my data"}, "no name of a variable"),
        ({"batch_sizes": "one"}, "batch size"),
        ({"more": "--treads 2"}, "--threads"),
    ],
)
def test_what_is_not_valid_is_said(changes, message):
    """Each in words of its own, as the magic would."""
    line = replace(BLOCKS, **changes)

    with pytest.raises(UsageError, match=message):
        _ = line.text(), line.sweep()


def test_an_unknown_compiler_is_named():
    """The error offers the nearest."""
    with pytest.raises(UnknownNameError, match="openvino"):
        replace(BLOCKS, compilers=("openvina",)).sweep()
