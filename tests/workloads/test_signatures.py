"""The factors of a cell's models, read from its syntax."""

from __future__ import annotations

import ast

import pytest

from ngbkit.errors import WorkloadError
from ngbkit.workloads.signatures import Signature, find_bindings, read

SWEPT = ("width", "depth")
NONE, ALL = Signature(), Signature(takes=SWEPT)


@pytest.mark.parametrize(
    ("cell", "expected"),
    [
        ("def model(width, depth=3): ...", Signature(takes=SWEPT, optional=("depth",))),
        ("def model(width, *, heads, depth=3): ...", Signature(takes=("width", "heads", "depth"), optional=("depth",))),
        ("def model(size, **more): ...", Signature(takes=("size", *SWEPT))),
        ("def model(): ...", NONE),
        ("model = lambda depth: 0", Signature(takes=("depth",))),
        ("model = torch.nn.Linear(4, 2)", NONE),
        (
            "class Net(nn.Module):\n def __init__(self, depth=2): ...\nmodel = Net",
            Signature(takes=("depth",), optional=("depth",)),
        ),
        ("class model(torch.nn.Module):\n def forward(self, x): ...", NONE),
        ("class Net(nn.Module):\n def __init__(self, width): ...\nclass model(Net): ...", Signature(takes=("width",))),
        ("class model(Strange): ...", ALL),
        ("from mine import model", ALL),
        ("from mine import *", ALL),
        ("import mine as model", ALL),
        ("model = mine.build", ALL),
        ("model = functools.partial(build, 3)", ALL),
        ("if fast:\n def model(width): ...", Signature(takes=("width",))),
        ("try:\n from mine import model\nexcept ImportError:\n model = lambda depth: 0", Signature(takes=("depth",))),
        ("model = net = Net()", NONE),
        ("model: nn.Module = Net()", NONE),
        ("model, other = build()", ALL),
        ("model = model", ALL),
    ],
)
def test_a_model_takes_the_factors_of_its_signature(cell: str, expected: Signature) -> None:
    """A model without a visible signature takes every swept factor; an object takes none."""
    assert {None: expected} == read(ast.parse(cell), SWEPT)


@pytest.mark.parametrize(
    "cell",
    ['models = {"a": Net(), "b": lambda width: 0}', "models = dict(a=Net(), b=lambda width: 0)"],
)
def test_models_are_read_key_by_key(cell: str) -> None:
    """Each key has its own signature."""
    assert {"a": NONE, "b": Signature(takes=("width",))} == read(ast.parse(cell), SWEPT)


@pytest.mark.parametrize(
    ("cell", "message"),
    [
        ("models = build()", "invalid `models`: its keys are unknown until the cell runs. .* one literal dict"),
        ("models = {name: 0 for name in names}", "unknown until the cell runs"),
        ("models = {**more}", "invalid keys of `models`; expected one or more strings"),
        ("models = {}", "expected one or more"),
        ('models = {"a": 0, "a": 1}', "each once"),
        ('models = {"a": 0}\nmodels["b"] = 1', "line 2 of the cell changes `models`"),
        ('models = {"a": 0}\nmodels.update(b=1)', "line 2 of the cell changes `models`"),
        ('models = {"a": 0}\nmodel = 1', "both `model` and `models`"),
    ],
)
def test_models_without_literal_keys_are_rejected(cell: str, message: str) -> None:
    """No model is skipped silently; the error shows the literal dict to write."""
    with pytest.raises(WorkloadError, match=message):
        read(ast.parse(cell), SWEPT)


def test_a_cell_without_a_model_has_none() -> None:
    """A name bound only inside a function is not a name of the cell."""
    assert read(ast.parse("def f():\n model = 1\nmodels[0]"), SWEPT) is None


def test_names_are_bound_by_every_kind_of_statement() -> None:
    """Loops, contexts, branches and unpackings bind names too."""
    cell = "for a in x:\n b = 1\nwith y:\n c = 2\nwhile z:\n d = 3\nelse:\n e = 4\nf, (g, *h) = i\nx[j] = 5\nk.l = 6"

    assert set("abcdefgh") == set(find_bindings(ast.parse(cell)))
