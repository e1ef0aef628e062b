"""What a build does beside its network is found: settings, replaced code, statements that act."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest
import torch

from ngbkit.workloads.content import side_effects


@pytest.fixture
def package(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    module = ModuleType("ngbkit_side_effects")
    exec("class Layer:\n    def forward(self): return 1\ndef relu(x): return x\nHOOKS = {}", vars(module))
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return module


@pytest.mark.parametrize(
    ("line", "place"),
    [
        ("package.relu = steps", "relu"),
        ("package.Layer.forward = steps", "Layer.forward"),
        ("package.HOOKS[1] = steps", "HOOKS.1"),
        ("package.HOOKS[steps] = steps", "HOOKS.<function steps at >"),
        ("package.HOOKS[1] = Holder()", "HOOKS.1"),
    ],
)
def test_replaced_code_is_found(package: ModuleType, line: str, place: str) -> None:
    before = side_effects.copy_names([package.__name__])
    names = {"package": package, "__name__": "ngbkit_of_a_cell"}
    exec("def steps(x): return x\nclass Holder:\n    def __init__(self): self.steps = steps", names)
    assert not [*side_effects.find_replaced(before, [package.__name__])]
    exec(line, names)
    replaced = [*side_effects.find_replaced(before, [package.__name__])]
    assert replaced == [(f"{package.__name__}.{place}", names["steps"])]


def test_a_changed_setting_is_listed() -> None:
    before, threads = side_effects.list_settings(), torch.get_num_threads()
    torch.set_num_threads(threads + 1)
    try:
        assert {*side_effects.list_settings()} - {*before} == {f"get_num_threads {threads + 1}"}
    finally:
        torch.set_num_threads(threads)


@pytest.mark.parametrize(
    "source",
    [
        "run(STEPS)",
        "module.name = STEPS",
        "table[0] = STEPS",
        "def steps():\n    return STEPS\nrun(steps)",
        "def steps():\n    return STEPS\ndef other():\n    return steps()\nmodule.name = other",
        "@register\ndef steps():\n    return STEPS",
        "try:\n    pass\nexcept ValueError:\n    run(STEPS)",
        "for i in range(2):\n    if i:\n        run(STEPS)",
    ],
)
def test_a_statement_that_acts_counts_with_what_it_names(source: str) -> None:
    before, after = (side_effects.list_acts(source.replace("STEPS", steps)) for steps in ("1", "2"))
    assert before != after
    assert before == side_effects.list_acts(
        "# a comment\nimport json\ndef other():\n    return 3\n" + source.replace("STEPS", "1")
    )


@pytest.mark.parametrize(
    "source",
    [
        "'''STEPS'''",
        "{'name': STEPS}",
        "WIDTH = STEPS",
        "def steps():\n    run(STEPS)",
        "if __name__ == '__main__':\n    run(STEPS)",
    ],
)
def test_a_statement_that_only_defines_does_not_count(source: str) -> None:
    assert side_effects.list_acts(source.replace("STEPS", "1")) == []
