"""Variables in the line of a magic: those that Python itself would read in its place, and texts that they insert."""

from __future__ import annotations

import enum
from decimal import Decimal
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from cells import fail_cell, run_cell
from IPython.core.interactiveshell import InteractiveShell
from state import NewRuns

from ngbkit.errors import UsageError
from ngbkit.notebook import variables
from ngbkit.notebook.variables import Scope, expand

INNER = """
def outer(net):
    def inner():
        ds = %ngbench $net
    inner()
outer("local.onnx")"""
COMPREHENSION = """
def sweep(net):
    [get_ipython().run_line_magic("ngbench", "$net") for _ in range(1)]
sweep("local.onnx")"""
CELL_MAGIC = """
def sweep(net):
    get_ipython().run_cell_magic("ngbench", "$net", "import torch\\nmodel = torch.nn.ReLU()\\ninput_shape = (3,)")
sweep("local.onnx")"""
CLASS = """
class Study:
    net = "local.onnx"
    ds = %ngbench $net"""


class Precision(str, enum.Enum):
    """A choice that is a text."""

    HALF = "f16"


@pytest.mark.parametrize(
    "cell",
    [
        'def sweep(net):\n    ds = %ngbench $net\nsweep("local.onnx")',
        'def sweep(net):\n    %ngbench {net}\nsweep("local.onnx")',
        'def sweep(net):\n    %time ds = %ngbench $net\nsweep("local.onnx")',
        'sweep = lambda net: get_ipython().run_line_magic("ngbench", "$net")\nsweep("local.onnx")',
        *(INNER, COMPREHENSION, CELL_MAGIC, CLASS),
    ],
)
def test_the_variable_of_a_function_hides_that_of_the_notebook(shell: InteractiveShell, cell: str) -> None:
    """A magic in a function reads the function's variable, not the notebook's."""
    shell.user_ns["net"] = "global.onnx"
    error, _ = fail_cell(shell, cell)

    assert "there is no file local.onnx" in str(error)


def test_a_function_reads_the_variables_of_the_notebook_and_of_its_module(shell: InteractiveShell) -> None:
    """The module of a function comes before the notebook."""
    shell.user_ns["net"] = "global.onnx"
    of_notebook, _ = fail_cell(shell, "def sweep():\n    ds = %ngbench $net\nsweep()")
    module = ModuleType("study")
    source = 'net = "module.onnx"\ndef sweep():\n    get_ipython().run_line_magic("ngbench", "$net")'
    exec(source, vars(module) | {"get_ipython": lambda: shell}, vars(module))
    module.sweep.__globals__["net"] = module.net
    shell.user_ns["study"] = module
    of_module, _ = fail_cell(shell, "study.sweep()")

    assert "there is no file global.onnx" in str(of_notebook)
    assert "there is no file module.onnx" in str(of_module)


@pytest.mark.parametrize(
    ("cell", "message"),
    [
        ("%ngbench $nte", "unknown variable $nte: the notebook does not have a variable nte. Did you mean net?"),
        ("%ngbench {qqqq}", "unknown variable {qqqq}: the notebook does not have a variable qqqq. Assign it"),
        ("def f():\n    %ngbench $qqqq\nf()", "$qqqq: neither f() nor the notebook has a variable qqqq"),
        ("def f():\n    ds = %ngbench $net\n    net = 1\nf()", "unknown variable $net: f() assigns net later"),
        (
            "def make(net):\n    def go():\n        ds = %ngbench $net\n    return go\nmake('local.onnx')()",
            "$net: go() does not use net itself, and the function around it has returned. Add net to its parameters.",
        ),
        (
            "%ngbench {nets[0]}",
            "got {nets[0]}; expected a variable, $name or {name}. Assign it in a line before: value",
        ),
        ("%ngbench resnet18 -b {2**3}", "invalid expression in the line of a magic: got {2**3}"),
        ("%ngbench {' '.join(nets)}", "value = ' '.join(nets), and write $value here."),
        ('%ngbench resnet18{"img_size":{sizes[0]}}', "got {sizes[0]}; expected a variable"),
        ("%ngcompilers $qqqq", "unknown variable $qqqq"),
        ("%ngbench resnet18 --cluster $rc", "unknown variable $rc"),
    ],
)
def test_a_missing_variable_and_an_expression_are_errors(
    shell: InteractiveShell, new_runs: NewRuns, cell: str, message: str
) -> None:
    """The error names it, where it was looked for, and the valid way."""
    shell.user_ns["net"] = "global.onnx"
    error, _ = fail_cell(shell, cell)

    assert isinstance(error, UsageError)
    assert message in str(error)
    assert [] == new_runs()


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (96, "96"),
        (2.0, "2"),
        (0.5, "0.5"),
        (Decimal("1.5"), "1.5"),
        (True, "true"),
        (np.int64(2), "2"),
        (Precision.HALF, "f16"),
        (Path("a b/net.onnx"), "a b/net.onnx"),
        ([1, 2], "1,2"),
        ((3, 224, 224), "3,224,224"),
        ({2, 1}, "1,2"),
        (range(1, 4), "1,2,3"),
        ({"small": 1, "big": 2}.keys(), "small,big"),
        (np.array([1, 2]), "1,2"),
        (pd.Index([1, 2]), "1,2"),
        (pd.Series([1.0, 2.5]), "1,2.5"),
        (xr.DataArray([1, 2]), "1,2"),
    ],
)
def test_a_value_is_inserted_as_a_text_or_a_list(value: Any, text: str) -> None:
    """Arrays, Series and sets are lists, whose items commas join."""
    scope = Scope({"value": value})

    assert [text, f"width={text}"] == [expand("$value", scope), expand("width={value}", scope)]


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (None, "got None"),
        ([], "got an empty list"),
        ({"a": 1}, "got a value of type dict"),
        ([[3, 4], [5, 6]], "got a value of type list"),
        (pd.DataFrame({"a": [1]}), "got a value of type DataFrame"),
        (xr.Dataset({"a": 1}), "got a value of type Dataset"),
        (print, "got a value of type builtin_function_or_method"),
    ],
)
def test_a_value_without_a_text_is_an_error(value: Any, kind: str) -> None:
    """The error says what is valid."""
    with pytest.raises(UsageError, match=rf"invalid variable \$value: {kind}; expected a text, a number, a path, or a"):
        expand("$value", Scope({"value": value}))


@pytest.mark.parametrize(
    "word",
    [
        *('openvino{"hint":"latency"}', "openvino{hint:latency,threads=2}", "openvino{}", 'net{"size":{"a":1}}'),
        *("openvino{{hint:latency}}", '{"a": 1}', "{'a': 1}", "$5", "a$"),
    ],
)
def test_options_in_braces_stay(word: str) -> None:
    """JSON, and its forms with fewer quotes, are no expressions."""
    assert word == expand(word, Scope({"hint": 1, "a": 2}))


def test_variables_in_options_are_inserted() -> None:
    """Variables are inserted in every form, and two dollar signs give one."""
    scope = Scope({"size": 96, "hint": "latency"})

    assert 'net{"img_size":96,"b":96,"c":"latency"}' == expand('net{"img_size":$size,"b":{size},"c":"$hint"}', scope)
    assert "96-96-$size" == expand("${size}-{ size }-$$size", scope)


def test_a_magic_binds_no_variable_of_a_function(shell: InteractiveShell, new_runs: NewRuns, mlp_file: Path) -> None:
    """The error says to assign the value, before anything is measured; the notebook keeps its variable."""
    shell.user_ns["ds"] = "global"
    error, _ = fail_cell(shell, f"def sweep():\n    %ngbench {mlp_file} -o ds\n    return ds\nsweep()")

    assert "invalid -o ds: got it in sweep(), whose variables no magic can bind" in str(error)
    assert "Assign the value instead: ds = %ngbench …, without -o." in str(error)
    assert ("global", []) == (shell.user_ns["ds"], new_runs())


def test_without_a_caller_the_scope_is_the_notebook(shell: InteractiveShell) -> None:
    """The scope is the notebook if no function calls."""
    cell = "import ngbkit.notebook.variables as module\nscope = module.find_scope(get_ipython())"
    shell.run_cell(cell).raise_error()

    assert shell.user_ns["scope"].names is shell.user_ns
    assert isinstance(variables.find_scope(shell).names["cell"], str)


@pytest.mark.parametrize(
    ("cell", "is_displayed"),
    [
        ("for _ in range(1):\n    %ngcompilers identity", True),
        ("def look():\n    %ngcompilers identity\nlook()", True),
        ("%ngcompilers identity\nx = 1", True),
        ("def look():\n    rows = %ngcompilers identity\nlook()", False),
        ("rows = %ngcompilers identity", False),
    ],
)
def test_a_value_that_its_line_drops_is_displayed(shell: InteractiveShell, cell: str, is_displayed: bool) -> None:
    """A magic displays its value where IPython would drop it."""
    _, output = run_cell(shell, cell)

    assert is_displayed == ("identity" in output)


def test_the_value_of_a_cell_is_displayed_once(shell: InteractiveShell) -> None:
    """IPython alone displays the value of a cell."""
    _, output = run_cell(shell, "%ngcompilers identity")

    assert 1 == output.count("identity\n")
