"""The hash of a built network: what computes otherwise is another one, and nothing else is."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from ngbkit.workloads import building, cell
from ngbkit.workloads.content.network_hash import hash_network

CELL = """import torch
from torch import nn

def scale(x):
    return 2 * x

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(8, 4)
        self.steps = 2
        self.mask = torch.ones(4)

    def forward(self, x):
        if x.sum() > 1e9:
            return self.other(x)
        return scale(self.fc(x)) * self.mask

    def other(self, x):
        return self.fc(x).exp()

model = Net()
input_shape = (8,)
"""


def hash_cell(source: str) -> str:
    imported = {name for name in sys.modules if not name.startswith("ngbench_")}
    (workload,) = cell.from_source(source)
    network = building.build(workload, {})
    assert network.module is not None
    return hash_network(network, network.module, 0, imported)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("nn.Linear(8, 4)", "nn.Linear(8, 4, bias=False)"),
        ("nn.Linear(8, 4)", "torch.manual_seed(7) and None or nn.Linear(8, 4)"),
        ("2 * x", "3 * x"),
        ("2 * x", "x + x"),
        ("return 2", "import time; time.sleep(0); return 2"),
        ("    return 2 * x", "    for _ in range(100):\n        pass\n    return 2 * x"),
        ("steps = 2", "steps = 3"),
        ("torch.ones(4)", "torch.ones(4) * 0.5"),
        (".exp()", ".sin()"),
        ("model = Net()", "model = Net()\nmodel.fc.register_forward_hook(lambda *args: None)"),
        ("model = Net()", "model = Net()\nmodel.forward = lambda x: model.fc(x)"),
        ("input_shape = (8,)", "inputs = torch.ones(2, 8)"),
    ],
)
def test_what_computes_otherwise_is_another_network(old: str, new: str) -> None:
    """The hash changes with tensors, with code that a branch not taken reaches, and with what only costs time."""
    assert old in CELL
    assert hash_cell(CELL) != hash_cell(CELL.replace(old, new))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("scale", "double"),
        ("(x):\n    return 2 * x", "(y):\n    '''Double.'''\n\n    return 2 * y  # twice"),
        ("def scale", "def unused():\n    return 1\n\ndef scale"),
        ("import torch\n", "import json\nimport torch\n"),
        ("class Net", "class Net2"),
    ],
)
def test_names_and_layout_are_no_part_of_it(old: str, new: str) -> None:
    """The hash stays the same with other names of functions and variables, comments, and code that nothing calls."""
    source = CELL.replace(old, new).replace("= Net()", "= Net2()" if new == "class Net2" else "= Net()")

    assert source != CELL
    assert hash_cell(CELL) == hash_cell(source)


def test_a_moved_class_is_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The hash of a network is the same whether its class is in the cell or in a module."""
    monkeypatch.syspath_prepend(tmp_path)
    definition, rest = CELL.split("model = Net()")
    (tmp_path / "ngbtest_moved.py").write_text(definition)
    moved = hash_cell(f"from ngbtest_moved import Net\nmodel = Net(){rest}")
    monkeypatch.delitem(sys.modules, "ngbtest_moved")

    assert hash_cell(CELL) == moved
