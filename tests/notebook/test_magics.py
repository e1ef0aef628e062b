"""The magics in a real IPython shell: the variables that they bind, their displays, and their errors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import xarray as xr
from cells import fail_cell, run_cell
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output
from patience import wait_until
from state import NewRuns

import ngbkit
from ngbkit.commands.command import load_magics
from ngbkit.commands.run import answer_estimate
from ngbkit.errors import DeviceError, UsageError
from ngbkit.runs import Run

CELL = """
import torch

def model(width):
    return torch.nn.Sequential(torch.nn.Conv2d(width, 4, 3), torch.nn.ReLU())

input_shape = lambda width: (width, 8, 8)
"""
VARIANTS = """
import torch

def model(variant):
    layers = {"plain": [torch.nn.Linear(3, 2)], "residual": [torch.nn.Linear(3, 3)]}
    return torch.nn.Sequential(*layers[variant])

input_shape = (3,)
"""
BLEND = """
import torch

class Blend(torch.nn.Module):
    def forward(self, image, mask):
        return image * mask

model = Blend()
"""


def test_unloading_removes_the_magics(shell: InteractiveShell) -> None:
    """Loading the extension again restores them, once."""
    kinds = {name: (shell.find_line_magic(name), shell.find_cell_magic(name)) for name in load_magics()}
    shell.run_line_magic("unload_ext", "ngbkit")
    remaining = [shell.find_line_magic(name) or shell.find_cell_magic(name) for name in load_magics()]
    matchers = len(shell.Completer.custom_matchers)
    shell.run_line_magic("load_ext", "ngbkit")

    assert all(line for line, _ in kinds.values())
    assert ["ngbench", "nginputs"] == [name for name, (_, cell) in kinds.items() if cell]
    assert {None} == set(remaining)
    assert (0, 1) == (matchers, len(shell.Completer.custom_matchers))


@pytest.mark.parametrize("name", load_magics())
def test_every_option_is_in_the_help(shell: InteractiveShell, name: str) -> None:
    """`%ngbench?` shows the docstring, which has the help of the parser."""
    help_text = "".join(str(shell.find_line_magic(name).__doc__).split())  # lines may end within a flag

    for argument in load_magics()[name].magic_arguments:
        assert [] == [flag for flag in argument.flags if flag.startswith("-") and flag not in help_text]
        assert "".join(argument.help.replace("%%", "%").split()) in help_text


@pytest.mark.parametrize("line", ["%ngbench --help", "%ngbench resnet18 -h", "%ngruns --help"])
def test_help_is_printed_as_in_a_shell(shell: InteractiveShell, line: str) -> None:
    """The option --help of a magic prints its help and measures nothing."""
    value, text = run_cell(shell, line)

    assert value is None
    assert f"%{line[1:].partition(' ')[0]}" in text
    assert "options:" in text.lower()


@pytest.mark.guard
def test_a_line_binds_a_dataset_and_shows_one_table(shell: InteractiveShell, mlp_file: Path) -> None:
    """Labels of compilers keep their options, and $sizes inserts a variable of the notebook."""
    shell.user_ns["sizes"] = [1, 2]
    line = f'%ngbench {mlp_file} -c identity,onnxruntime{{"optimization": "basic"}} -b $sizes -r 3 -o ds'
    value, output = run_cell(shell, line)
    ds = shell.user_ns["ds"]

    assert value is None
    assert ["identity", 'onnxruntime{"optimization":"basic"}'] == list(ds["compiler"].values)
    assert ([1, 2], 3) == (list(ds["batch_size"].values), ds.sizes["repeat"])
    assert {"ok"} == set(ds["status"].values.ravel())
    assert 1.0 == float(ds.ngb.bsr().sel(compiler="identity", batch_size=2).item())
    assert 1 == output.count("throughput (samples/s)")
    assert "4 of 4 trials, finished" in output


def test_a_budget_and_an_estimate_are_options(shell: InteractiveShell, mlp_file: Path) -> None:
    """A budget measures a part of the trials, an estimate none."""
    run_cell(shell, f"%ngbench {mlp_file} -c identity,onnxruntime -b 1,2 -r 5 --budget 50% -o ds")
    run_cell(shell, f"estimate = %ngbench {mlp_file} -c identity,onnxruntime -b 1,2 -r 5 --estimate")

    assert {"ok", "predicted"} == set(shell.user_ns["ds"]["status"].values.ravel())
    estimate = shell.user_ns["estimate"]
    value, output = run_cell(shell, f"%ngbench {mlp_file} -c identity,onnxruntime -b 1,2 -r 5 --estimate")

    assert "4 trials in 2 groups, about" in str(estimate)
    assert repr(value) == repr(estimate)
    assert answer_estimate(estimate).to_text() in output
    assert 2 == len(estimate.best())


def test_without_a_name_the_dataset_is_the_value(shell: InteractiveShell, mlp_file: Path) -> None:
    """`ds = %ngbench …` works as for any expression."""
    run_cell(shell, f"ds = %ngbench {mlp_file} -c onnxruntime -r 3")

    assert isinstance(shell.user_ns["ds"], xr.Dataset)


def test_the_value_of_a_line_has_the_tables(shell: InteractiveShell, mlp_file: Path) -> None:
    """The tables of a run are displayed once, as the value of the cell."""
    with capture_output() as captured:
        shell.run_cell(f"%ngbench {mlp_file} -c onnxruntime -r 3").raise_error()
    outputs = [output.data["text/plain"] for output in captured.outputs]

    assert 1 == "".join([captured.stdout, *outputs]).count("throughput (samples/s)")
    assert ["1 of 1 trials, finished" in text for text in outputs][:1] == [True]
    assert "throughput (samples/s)" not in outputs[0]


@pytest.mark.guard
def test_a_cell_defines_a_network(shell: InteractiveShell) -> None:
    """The device builds it for each value of its factors, and the notebook gets none of its variables."""
    run_cell(shell, f"%%ngbench -c identity --factor width=2,3 --name net -r 3 -o ds\n{CELL}")
    ds = shell.user_ns["ds"]

    assert ([2, 3], ["net"]) == (list(ds["width"].values), list(ds["workload"].values))
    assert {"ok"} == set(ds["status"].values.ravel())
    assert "model" not in shell.user_ns


def test_a_factor_of_a_cell_may_be_a_text(shell: InteractiveShell) -> None:
    """The model gets the word, which is a label of the dataset and of its tables."""
    run_cell(shell, f"%%ngbench -c identity --factor variant=residual,plain --name net -r 3 -o ds\n{VARIANTS}")
    ds = shell.user_ns["ds"]

    assert ["residual", "plain"] == ds["variant"].values.tolist()
    assert [12, 8] == ds["parameters"].squeeze("workload").values.tolist()
    assert {"ok"} == set(ds.sel(variant="plain")["status"].values.ravel())
    assert "residual" in repr(ds.ngb.table("throughput"))


def test_a_missing_input_is_named_with_the_remedy(shell: InteractiveShell) -> None:
    """The error of a missing input has its name and a remedy, for a cell and a module."""
    run_cell(shell, BLEND)
    of_cell, _ = fail_cell(shell, f"%%ngbench -r 3 -o ds\n{BLEND}\ninput_shape = (3, 8, 8)")
    of_module, _ = fail_cell(shell, "%ngbench model --input-shape 3,8,8 -r 3")

    for error in (of_cell, of_module):
        assert "got image; expected image, mask, the arguments of forward(); mask is missing." in str(error)
        assert 'input_shape = {"image": (3, 8, 8), "mask": (…)}, or give tensors: inputs = (image, mask)' in str(error)


def test_the_help_names_several_models(shell: InteractiveShell) -> None:
    """A cell with a dict of models is in `%ngbench?`, as texts of factors are."""
    help_text = " ".join(str(shell.find_line_magic("ngbench").__doc__).split())

    assert 'models = {"small": small, "large": large}' in help_text
    assert "--factor variant=plain,residual" in help_text


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("%ngbench resnet18 -c opnvino", "Did you mean openvino"),
        ("%ngbench resnet18 --batchsize 1", "Did you mean --batch-sizes"),
        ("%ngbench resnet18 -o out.nc", "invalid variable name -o 'out.nc'"),
        ("%ngbench 'resnet18", "never closed"),
        ("%ngbench", "invalid workloads: got none"),
        ("%ngbench none.onnx", "there is no file none.onnx"),
        ("%ngselfcheck --groups some", "invalid int value: 'some'"),
        ("%%ngbench -o ds\nx = 1", "the cell binds neither `model` nor `models`; expected one of them"),
        ("%%ngbench -o ds\nx = 1", 'For several networks, bind models = {"small": small, "large": large}'),
        ("%%ngbench -o ds\nfrom torch import nn\nnet = nn.ReLU()", "it binds net. Rename it to `model`"),
        ("%%ngbench -o ds\nnets = {'a': make(1), 'b': make(2)}", "it binds the dict nets. Rename it to `models`"),
        ("%%ngbench -o ds\nmodel1 = make(1)\nmodel_a = make(2)", 'models = {"model1": model1, "model_a": model_a}'),
        (f"%%ngbench --factor variant=plain,3 -o ds\n{VARIANTS}", "got 'plain,3', numbers and texts; expected only"),
        ("%ngbench blocks.conv --factor depth=1 --factor width=wide", "got 'wide'; expected numbers, since width is a"),
        ("%%ngbench -o ds\nimport torch\nmodel = (", "invalid syntax in the cell"),
    ],
)
def test_an_invalid_line_is_a_usage_error(shell: InteractiveShell, new_runs: NewRuns, line: str, message: str) -> None:
    """The error is one line, without the traceback of ngbkit, before any measurement."""
    error, output = fail_cell(shell, line)

    assert isinstance(error, UsageError)
    assert message in str(error)
    assert "ngbkit/" not in output
    assert [] == new_runs()


def test_a_cell_that_raises_shows_its_own_traceback(shell: InteractiveShell) -> None:
    """The traceback has the line numbers of the cell, and the dataset is bound nevertheless."""
    cell = (
        "%%ngbench -r 3 -o ds\nimport torch\ninput_shape = (3,)\ndef model():\n    raise ValueError('no such layer')\n"
    )
    error, output = fail_cell(shell, cell)

    assert isinstance(error, UsageError)
    assert "ValueError: no such layer" in str(error)
    assert "line 5, in model\n    raise ValueError" in output
    assert "ngbkit/" not in output
    assert {"failed"} == set(shell.user_ns["ds"]["status"].values.ravel())


@pytest.mark.parametrize(
    ("line", "proposal"),
    [
        ("%ngruns --resume 1999", "`%ngruns` lists all runs."),
        ("%ngbench resnet18 -c qqqq", "`%ngcompilers` lists them all."),
        ("ngbkit.resume('1999')", "`ngbkit.runs.summaries()` lists all runs."),
    ],
)
def test_an_error_proposes_what_can_be_typed_here(shell: InteractiveShell, line: str, proposal: str) -> None:
    """A magic's names magics, and one of Python names calls; a shell's own commands are in neither."""
    shell.user_ns["ngbkit"] = ngbkit
    _, output = fail_cell(shell, line)

    assert proposal in output
    assert "`ngbkit runs`" not in output


def test_an_empty_list_names_the_magic(shell: InteractiveShell, tmp_path: Path) -> None:
    """The same sentence names the command in a shell."""
    with ngbkit.set_options(state_dir=tmp_path):
        _, output = run_cell(shell, "%ngruns")

    assert "There is no run yet: `%ngbench` starts one." in output


def test_the_first_reason_is_shown_if_trials_fail_for_several(shell: InteractiveShell) -> None:
    """The error has the first of several reasons, with the line of the cell."""
    cell = (
        "%%ngbench -c onnxruntime,openvino --factor width=2,3 -r 3\ninput_shape = (3,)\ndef model(width):\n"
        "    raise ValueError(f'no {width}')\n"
    )
    error, output = fail_cell(shell, cell)

    assert "no trial gave a result, the first of 2 reasons is failed: the cell raised ValueError: no 2" in str(error)
    assert "raise ValueError(f'no {width}')" in output
    assert output.index("4 trials in 2 groups") < output.index("no speed-ups: identity")


def test_a_run_that_fails_raises_its_error(
    shell: InteractiveShell, mlp_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The measurements of the run are bound."""

    def fail(*_: Any) -> None:
        raise DeviceError("the engine did not start.")

    monkeypatch.setattr("ngbkit.cluster.engines.acquire", fail)
    error, _ = fail_cell(shell, f"%ngbench {mlp_file} -r 3 -o ds")

    assert (DeviceError, "the engine did not start.") == (type(error), str(error))
    assert {"pending"} == set(shell.user_ns["ds"]["status"].values.ravel())


def test_a_run_in_the_background_binds_its_dataset_at_its_end(shell: InteractiveShell, mlp_file: Path) -> None:
    """The cell returns the live run at once, to stop it or to wait for it."""
    run_cell(shell, f'run = %ngbench {mlp_file} -c slow{{"seconds":0.05}} -b 1:3 -r 5 --background -o ds')
    run, bound_early = shell.user_ns["run"], "ds" in shell.user_ns
    run.wait()
    wait_until(lambda: "ds" in shell.user_ns)

    assert isinstance(run, Run)
    assert not bound_early
    assert {"ok"} == set(shell.user_ns["ds"]["status"].values.ravel())


def test_lists_are_tables(shell: InteractiveShell, mlp_file: Path) -> None:
    """Devices, compilers and runs are tables in text and in HTML."""
    run_cell(shell, f"%ngbench {mlp_file} -r 3 -o ds")
    listings = {name: run_cell(shell, f"%{name}")[0] for name in ("ngdevices", "ngcompilers", "ngruns")}

    assert "local" in repr(listings["ngdevices"])  # the first of columns that a long name of the chip wraps
    assert "openvino" in repr(listings["ngcompilers"])
    assert shell.user_ns["ds"].attrs["run_id"] in repr(listings["ngruns"])
    assert [True] * 3 == [listing._repr_html_().startswith("<table") for listing in listings.values()]


def test_failures_are_reported_with_the_last_output(shell: InteractiveShell, new_runs: NewRuns, mlp_file: Path) -> None:
    """The id of a run selects them; a line resumes or reports, not both."""
    run_cell(shell, f"%ngbench {mlp_file} -c identity,raising -r 3 -o ds")
    sheet, _ = run_cell(shell, f"%ngruns --failures {new_runs()[0].id}")
    error, _ = fail_cell(shell, f"%ngruns --failures {new_runs()[0].id} --resume {new_runs()[0].id}")

    assert repr(sheet).startswith("mlp batch 1 raising on cpu\n  failed in  compile\n")
    assert "RuntimeError: it fell over</pre>" in sheet._repr_html_()
    assert "Give one of them" in str(error)


def test_a_conclusive_run_is_not_measured_again(shell: InteractiveShell, new_runs: NewRuns, mlp_file: Path) -> None:
    """`%ngruns --settle` names the run, by itself or with --resume."""
    run_cell(shell, f"%ngbench {mlp_file} -c onnxruntime -r 6 -o ds")
    run_id = new_runs()[0].id
    _, output = run_cell(shell, f"%ngruns --settle {run_id}")
    _, resumed = run_cell(shell, f"%ngruns --resume {run_id} --settle")
    error, _ = fail_cell(shell, "%ngruns --settle")

    assert "Nothing is inconclusive" in output
    assert "Nothing is inconclusive" in resumed
    assert "Name it: `%ngruns --settle ID`" in str(error)
    error, _ = fail_cell(shell, "%ngruns --budget 20min")
    assert "Name it: `%ngruns --resume ID`" in str(error)


def test_a_selfcheck_is_a_table(shell: InteractiveShell, new_runs: NewRuns) -> None:
    """The table is the value of the magic, and a later line reports it again."""
    check, output = run_cell(shell, "%ngselfcheck --groups 2 -r 12 --threads 1")
    again, _ = run_cell(shell, f"check = %ngselfcheck {new_runs()[0].id}\ncheck")

    assert (2, None) == (check.quiet.groups, check.contended)
    assert check.quiet == again.quiet
    assert "identity against identity" in output
    assert check._repr_html_().startswith(("<table", "<p>"))
