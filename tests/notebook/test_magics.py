"""The magics, through a real IPython shell: what they bind, what they show, and how they fail."""

from __future__ import annotations

import signal
import threading
from dataclasses import replace
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
import xarray as xr
from IPython.core.error import UsageError
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output
from patience import wait_until
from state import NewRuns

from ngbkit.errors import DeviceError
from ngbkit.notebook import magics
from ngbkit.runs import Run
from ngbkit.workloads.base import Workload

CELL = """
import torch

def model(width):
    return torch.nn.Sequential(torch.nn.Conv2d(width, 4, 3), torch.nn.ReLU())

input_shape = lambda width: (width, 8, 8)
"""


def run_cell(shell: InteractiveShell, cell: str) -> tuple[Any, str]:
    """What a cell gave, and what it showed."""
    with capture_output() as captured:
        result = shell.run_cell(dedent(cell))
    result.raise_error()
    shown = "".join(output.data["text/plain"] for output in captured.outputs)
    return result.result, captured.stdout + captured.stderr + shown


def fail(shell: InteractiveShell, cell: str) -> tuple[BaseException, str]:
    """What a cell raised, and what it showed."""
    with capture_output() as captured:
        result = shell.run_cell(dedent(cell))
    assert result.error_in_exec is not None
    return result.error_in_exec, captured.stdout + captured.stderr


def test_unloading_takes_the_magics_away(shell: InteractiveShell) -> None:
    """And loading brings them back, once."""
    kinds = {name: (shell.find_line_magic(name), shell.find_cell_magic(name)) for name in magics.TABLES}
    shell.run_line_magic("unload_ext", "ngbkit")
    gone = [shell.find_line_magic(name) or shell.find_cell_magic(name) for name in magics.TABLES]
    matchers = len(shell.Completer.custom_matchers)
    shell.run_line_magic("load_ext", "ngbkit")

    assert [(True, True), *[(True, False)] * (len(magics.TABLES) - 1)] == [
        (line is not None, cell is not None) for line, cell in kinds.values()
    ]
    assert {None} == set(gone)
    assert (0, 1) == (matchers, len(shell.Completer.custom_matchers))


@pytest.mark.parametrize("name", magics.TABLES)
def test_every_option_is_in_the_help(shell: InteractiveShell, name: str) -> None:
    """`%ngbench?` shows the docstring, which the parser wrote."""
    help_text = " ".join(str(shell.find_line_magic(name).__doc__).split())

    for argument in magics.TABLES[name]:
        assert [] == [flag for flag in argument.flags if flag.startswith("-") and flag not in help_text]
        assert argument.help.replace("%%", "%") in help_text


def test_a_line_binds_a_dataset_and_shows_one_table(shell: InteractiveShell, mlp_file: Path) -> None:
    """The options of a compiler are spelt as in the results, and a variable of the user stands for its values."""
    shell.user_ns["sizes"] = [1, 2]
    line = f'%ngbench {mlp_file} -c identity,onnxruntime{{"optimization": "basic"}} -b $sizes -r 3 -o ds'
    value, shown = run_cell(shell, line)
    found = shell.user_ns["ds"]

    assert value is None
    assert ["identity", 'onnxruntime{"optimization":"basic"}'] == list(found["compiler"].values)
    assert ([1, 2], 3) == (list(found["batch_size"].values), found.sizes["repeat"])
    assert {"ok"} == set(found["status"].values.ravel())
    assert 1.0 == float(found.ngb.bsr().sel(compiler="identity", batch_size=2).item())
    assert 1 == shown.count("throughput (samples/s)")
    assert "4 of 4 trials, finished" in shown


def test_a_budget_and_an_estimate_are_options(shell: InteractiveShell, mlp_file: Path) -> None:
    """The one measures a part, the other nothing."""
    run_cell(shell, f"%ngbench {mlp_file} -c identity,onnxruntime -b 1,2 -r 5 --budget 50% -o ds")
    run_cell(shell, f"about = %ngbench {mlp_file} -c identity,onnxruntime -b 1,2 -r 5 --estimate")

    assert {"ok", "predicted"} == set(shell.user_ns["ds"]["status"].values.ravel())
    assert "4 trials in 2 groups, about" in str(shell.user_ns["about"])
    assert 2 == len(shell.user_ns["about"].best())


def test_without_a_name_the_dataset_is_the_value(shell: InteractiveShell, mlp_file: Path) -> None:
    """As with any expression: `ds = %ngbench …` works too."""
    run_cell(shell, f"ds = %ngbench {mlp_file} -c onnxruntime -r 3")

    assert isinstance(shell.user_ns["ds"], xr.Dataset)


def test_a_cell_defines_a_network(shell: InteractiveShell) -> None:
    """It is built on the device at each value of its factors, and nothing of it lands in the notebook."""
    run_cell(shell, f"%%ngbench -c identity --factor width=2,3 --name net -r 3 -o ds\n{CELL}")
    found = shell.user_ns["ds"]

    assert ([2, 3], ["net"]) == (list(found["width"].values), list(found["workload"].values))
    assert {"ok"} == set(found["status"].values.ravel())
    assert "model" not in shell.user_ns


def test_a_module_of_the_notebook_is_measured(shell: InteractiveShell) -> None:
    """By its variable's name, which wins over a network of timm that is called so."""
    import torch

    shell.user_ns["resnet18"] = torch.nn.Sequential(torch.nn.Linear(6, 4), torch.nn.ReLU())
    run_cell(shell, "%ngbench resnet18 -c identity,onnxruntime -b 1,2 -r 3 --input-shape 6 -o ds")
    found = shell.user_ns["ds"]

    assert {"ok"} == set(found["status"].values.ravel())
    assert 28.0 == found["parameters"].item()


@pytest.mark.parametrize(
    ("options", "variables", "shapes"),
    [
        ("--input-shape 6", {}, [(2, 6)]),
        ("--input-shape 3,8,8 --input-shape 5", {"inputs": "not these"}, [(2, 3, 8, 8), (2, 5)]),
        ("--inputs rows", {"rows": "rows"}, "rows"),
        ("", {"inputs": "rows", "input_shape": (7,)}, "rows"),
        ("", {"input_shape": (3, 8, 8)}, [(2, 3, 8, 8)]),
        ("", {"input_shape": [(3, 8, 8), [5]]}, [(2, 3, 8, 8), (2, 5)]),
    ],
)
def test_what_a_module_takes_is_said_by_options_or_variables(
    shell: InteractiveShell,
    mlp: Workload,
    monkeypatch: pytest.MonkeyPatch,
    options: str,
    variables: dict[str, Any],
    shapes: Any,
) -> None:
    """An option wins over a variable, and tensors over a shape."""
    import torch

    taken: list[Any] = []

    def from_module(name: str, module: Any, example_inputs: Any) -> Workload:
        taken.append(example_inputs)
        return replace(mlp, name=name)

    monkeypatch.setattr("ngbkit.workloads.module.from_module", from_module)
    shell.user_ns.update(variables, net=torch.nn.Identity())
    run_cell(shell, f"%ngbench net --name mine -r 3 -o ds {options}")
    (found,) = taken
    found = (
        found if isinstance(found, str) else [tuple(one.shape) for one in (found if type(found) is tuple else [found])]
    )

    assert shapes == found
    assert ["mine"] == list(shell.user_ns["ds"]["workload"].values)


@pytest.mark.parametrize(
    ("options", "variables", "told"),
    [
        ("", {}, "--input-shape 3,224,224, or example tensors by --inputs NAME"),
        ("--inputs rows", {}, "there is no variable of that name"),
        ("--input-shape 3,0", {}, "valid is the shape of one sample"),
        ("", {"input_shape": 5}, "the variable input_shape is 5"),
    ],
)
def test_a_module_without_inputs_is_a_usage_error(
    shell: InteractiveShell, options: str, variables: dict[str, Any], told: str
) -> None:
    """It names the options that say what it takes."""
    import torch

    shell.user_ns.update(variables, net=torch.nn.Identity())
    error, _ = fail(shell, f"%ngbench net {options}")

    assert isinstance(error, UsageError)
    assert told in str(error)


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("%ngbench resnet18 -c opnvino", "Did you mean openvino"),
        ("%ngbench resnet18 --batchsize 1", "Did you mean --batch-sizes"),
        ("%ngbench resnet18 -d orin", "unknown device 'orin'"),
        ("%ngbench resnet81", "Did you mean resnet18"),
        ("%ngbench resnet18 -b 0", "batch size 0 does not fit"),
        ("%ngbench resnet18 -o out.nc", "is no name of a variable"),
        ("%ngbench resnet18 -r x", "invalid int value: 'x'"),
        ("%ngbench 'resnet18", "not closed"),
        ("%ngbench", "at least one workload"),
        ("%ngbench none.onnx", "there is no file none.onnx"),
        ("%ngruns --resume 2099", "there is no run '2099'"),
        ("%ngruns --failures 2099", "there is no run '2099'"),
        ("%ngruns --failures 2099 --lines some", "invalid int value: 'some'"),
        ("%ngcompilers opnvino", "Did you mean openvino"),
        ("%ngcache clean", "--keep 5GB, --older-than 30d, or names"),
        ("%ngcache list --keep 5GB", "--keep goes with clean"),
        ("%ngcache -d orin", "unknown device 'orin'"),
        ("%ngselfcheck --groups 1", "groups 1 does not fit"),
        ("%ngselfcheck --run 2099", "there is no run '2099'"),
        ("%ngselfcheck --grups 3", "Did you mean --groups"),
        ("%%ngbench -o ds\nx = 1", "neither `model` nor `models`"),
        ("%%ngbench -o ds\nimport torch\nmodel = (", "does not parse"),
    ],
)
def test_what_is_not_valid_is_a_usage_error(shell: InteractiveShell, new_runs: NewRuns, line: str, told: str) -> None:
    """In a line, before anything is measured, and without the traceback of ngbkit."""
    error, shown = fail(shell, line)

    assert isinstance(error, UsageError)
    assert told in str(error)
    assert "ngbkit/" not in shown
    assert [] == new_runs()


def test_a_cell_that_raises_shows_its_own_traceback(shell: InteractiveShell) -> None:
    """With the line that the user sees, the magic's own being the first; the dataset is bound all the same."""
    cell = (
        "%%ngbench -r 3 -o ds\nimport torch\ninput_shape = (3,)\ndef model():\n    raise ValueError('no such layer')\n"
    )
    error, shown = fail(shell, cell)

    assert isinstance(error, UsageError)
    assert "ValueError: no such layer" in str(error)
    assert "line 5, in model\n    raise ValueError" in shown
    assert "ngbkit/" not in shown
    assert {"failed"} == set(shell.user_ns["ds"]["status"].values.ravel())


def test_a_run_that_fails_is_a_usage_error(
    shell: InteractiveShell, mlp_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it had measured is bound."""

    def lost(*_: Any) -> None:
        raise DeviceError("the engine did not come up.")

    monkeypatch.setattr("ngbkit.cluster.engines.engine", lost)
    error, _ = fail(shell, f"%ngbench {mlp_file} -r 3 -o ds")

    assert (UsageError, "the engine did not come up.") == (type(error), str(error))
    assert {"pending"} == set(shell.user_ns["ds"]["status"].values.ravel())


def interrupt_when_measured(new_runs: NewRuns, least: int) -> None:
    """Press Ctrl-C as soon as so many trials of a run are done."""

    def wait() -> None:
        wait_until(lambda: any(summary.statuses.get("ok", 0) >= least for summary in new_runs()))
        signal.raise_signal(signal.SIGINT)

    threading.Thread(target=wait, daemon=True).start()


def test_an_interrupt_binds_what_was_measured_and_resume_goes_on(
    shell: InteractiveShell, new_runs: NewRuns, mlp_file: Path
) -> None:
    """The message says how; later cells of a "Run All" do not run on half a dataset."""
    interrupt_when_measured(new_runs, 2)
    line = f'%ngbench {mlp_file} -c identity,slow{{"seconds":0.05}} -b 1:4 -r 20 -o part'
    error, shown = fail(shell, line)
    (run,) = new_runs()
    run_cell(shell, f"%ngruns --resume {run.id[:-1]} -o whole")
    part, whole = shell.user_ns["part"], shell.user_ns["whole"]

    assert isinstance(error, KeyboardInterrupt)
    assert f"`part` holds them. Go on with: %ngruns --resume {run.id}" in shown
    assert "Traceback" not in shown
    assert {"ok", "pending"} == set(part["status"].values.ravel())
    assert {"ok"} == set(whole["status"].values.ravel())
    xr.testing.assert_identical(part["latency"].sel(batch_size=1), whole["latency"].sel(batch_size=1))


def test_a_run_in_the_background_binds_its_dataset_at_its_end(shell: InteractiveShell, mlp_file: Path) -> None:
    """The cell returns at once, with a handle that can be stopped and waited for."""
    run_cell(shell, f'run = %ngbench {mlp_file} -c slow{{"seconds":0.05}} -b 1:3 -r 5 --background -o ds')
    run, early = shell.user_ns["run"], "ds" in shell.user_ns
    run.wait()
    wait_until(lambda: "ds" in shell.user_ns)

    assert isinstance(run, Run)
    assert not early
    assert {"ok"} == set(shell.user_ns["ds"]["status"].values.ravel())


def test_lists_are_tables(shell: InteractiveShell, mlp_file: Path) -> None:
    """As text and as HTML: what is here, and what there was."""
    run_cell(shell, f"%ngbench {mlp_file} -r 3 -o ds")
    listings = {name: run_cell(shell, f"%{name}")[0] for name in ("ngdevices", "ngcompilers", "ngruns", "ngcache")}

    assert "this machine's CPU" in repr(listings["ngdevices"])
    assert "openvino" in repr(listings["ngcompilers"])
    assert shell.user_ns["ds"].attrs["run_id"] in repr(listings["ngruns"])
    assert "preparation" in repr(listings["ngcache"])
    assert [True] * 4 == [listing._repr_html_().startswith("<table") for listing in listings.values()]


def test_all_about_a_compiler_is_a_sheet(shell: InteractiveShell) -> None:
    """Its options with their defaults, as text and as HTML."""
    sheet, _ = run_cell(shell, "%ngcompilers openvino")

    assert repr(sheet).startswith("openvino\n  is ")
    assert "option hint" in repr(sheet)
    assert "option hint</td>" in sheet._repr_html_()


def test_failures_are_told_with_what_was_said_last(shell: InteractiveShell, new_runs: NewRuns, mlp_file: Path) -> None:
    """By the id of the run; a line measures or tells, and not both."""
    run_cell(shell, f"%ngbench {mlp_file} -c identity,raising -r 3 -o ds")
    sheet, _ = run_cell(shell, f"%ngruns --failures {new_runs()[0].id} --lines 5")
    error, _ = fail(shell, f"%ngruns --failures {new_runs()[0].id} --resume {new_runs()[0].id}")

    assert repr(sheet).startswith("mlp batch 1 raising on cpu\n  failed in  compile\n")
    assert "RuntimeError: it fell over</pre>" in sheet._repr_html_()
    assert "give one of them" in str(error)


def test_a_selfcheck_is_a_table(shell: InteractiveShell, new_runs: NewRuns) -> None:
    """It is the value of the magic, and a later line reports on it again."""
    found, shown = run_cell(shell, "%ngselfcheck --groups 2 -r 12 --threads 1")
    again, _ = run_cell(shell, f"check = %ngselfcheck --run {new_runs()[0].id}\ncheck")

    assert (2, None) == (found.quiet.groups, found.disturbed)
    assert found.quiet == again.quiet
    assert "identity against identity" in shown
    assert found._repr_html_().startswith(("<table", "<p>"))


def test_a_selfcheck_that_is_interrupted_says_how_to_go_on(shell: InteractiveShell, new_runs: NewRuns) -> None:
    """What was measured is kept, and can be resumed and reported on."""
    interrupt_when_measured(new_runs, 2)
    error, shown = fail(shell, "%ngselfcheck --groups 30 -r 12 --threads 1")
    (run,) = new_runs()

    assert isinstance(error, KeyboardInterrupt)
    assert f"Go on with: %ngruns --resume {run.id} and then: %ngselfcheck --run {run.id}" in shown
