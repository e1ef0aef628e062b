"""Modules of a notebook as networks of a magic, and the inputs that they need."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from cells import fail_cell, run_cell
from IPython.core.interactiveshell import InteractiveShell

from ngbkit.errors import UsageError
from ngbkit.workloads.base import Workload


def test_a_module_of_the_notebook_is_measured(shell: InteractiveShell) -> None:
    """The name of its variable takes precedence over a network of timm."""
    import torch

    shell.user_ns["resnet18"] = torch.nn.Sequential(torch.nn.Linear(6, 4), torch.nn.ReLU())
    run_cell(shell, "%ngbench resnet18 -c identity,onnxruntime -b 1,2 -r 3 --input-shape 6 -o ds")
    ds = shell.user_ns["ds"]

    assert {"ok"} == set(ds["status"].values.ravel())
    assert 28.0 == ds["parameters"].item()


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
def test_options_or_variables_define_the_inputs_of_a_module(
    shell: InteractiveShell,
    mlp: Workload,
    monkeypatch: pytest.MonkeyPatch,
    options: str,
    variables: dict[str, Any],
    shapes: Any,
) -> None:
    """An option takes precedence over a variable, and tensors over a shape."""
    import torch

    calls: list[Any] = []

    def from_module(name: str, module: Any, example_inputs: Any) -> Workload:
        calls.append(example_inputs)
        return replace(mlp, name=name)

    monkeypatch.setattr("ngbkit.workloads.module.from_module", from_module)
    shell.user_ns.update(variables, net=torch.nn.Identity())
    run_cell(shell, f"%ngbench net --name mine -r 3 -o ds {options}")
    (inputs,) = calls
    if not isinstance(inputs, str):
        inputs = [tuple(tensor.shape) for tensor in (inputs if type(inputs) is tuple else [inputs])]

    assert shapes == inputs
    assert ["mine"] == list(shell.user_ns["ds"]["workload"].values)


@pytest.mark.parametrize(
    ("options", "variables", "message"),
    [
        ("", {}, "--input-shape 3,224,224, or example tensors by --inputs NAME"),
        ("--inputs rows", {}, "invalid --inputs: got 'rows'; expected the name of a variable of tensors"),
        ("--input-shape 3,0", {}, "expected the shape of one sample"),
        ("", {"input_shape": (3, 8.5)}, "invalid variable input_shape: got (3, 8.5)"),
        ("", {"input_shape": 5}, "invalid variable input_shape: got 5"),
    ],
)
def test_a_module_without_inputs_is_a_usage_error(
    shell: InteractiveShell, options: str, variables: dict[str, Any], message: str
) -> None:
    """The error names the options that define them."""
    import torch

    shell.user_ns.update(variables, net=torch.nn.Identity())
    error, _ = fail_cell(shell, f"%ngbench net {options}")

    assert isinstance(error, UsageError)
    assert message in str(error)
