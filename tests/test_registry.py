"""The registry: a compiler is found by its entry point, and a broken plugin breaks nothing else."""

from __future__ import annotations

from importlib.metadata import EntryPoint, EntryPoints

import pytest

from ngbkit import registry
from ngbkit.compilers.base import Compiler
from ngbkit.errors import UnknownNameError
from ngbkit.workloads.base import Source

OURS = {"identity", "torchscript", "inductor", "onnxruntime", "openvino", "tvm", "tensorrt"}


def test_our_compilers_and_sources_are_found() -> None:
    """Each entry point leads to a record of its own name."""
    compilers = registry.load_all(registry.COMPILERS)
    sources = registry.load_all(registry.WORKLOADS)

    assert set(compilers) >= OURS
    assert {"timm", "blocks", "onnx", "cell", "module"} <= set(sources)
    assert all(isinstance(one, Compiler) and one.name == name for name, one in compilers.items())
    assert all(isinstance(one, Source) and one.name == name for name, one in sources.items())


def test_a_strangers_compiler_is_found_without_a_change_of_ours() -> None:
    """The plugin of the tests is one file and one entry point."""
    assert "goes wrong: hang" == registry.load(registry.COMPILERS, "hang").summary


def test_an_unknown_compiler_offers_the_nearest() -> None:
    """With the command that lists them all."""
    with pytest.raises(UnknownNameError, match=r"Did you mean openvino\?.*ngbkit compilers"):
        registry.load(registry.COMPILERS, "opnvino")


def test_a_plugin_that_does_not_import_is_left_out_with_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    """The others are there."""
    broken = EntryPoint(name="broken", value="no_such_module:COMPILER", group=registry.COMPILERS)
    found = {**registry._entry_points(registry.COMPILERS), "broken": broken}
    monkeypatch.setattr(registry, "_entry_points", lambda group: found)
    with pytest.warns(UserWarning, match=r"'broken' \(no_such_module:COMPILER\) does not load"):
        loaded = registry.load_all(registry.COMPILERS)

    assert set(loaded) >= OURS
    assert "broken" not in loaded


def test_of_two_plugins_of_one_name_the_first_is_used() -> None:
    """And whoever installed the second is told."""
    points = EntryPoints([EntryPoint(name="x", value=value, group="g") for value in ("a:A", "b:B", "a:A")])
    with pytest.warns(UserWarning, match="a:A is used, b:B is ignored"):
        found = registry.unique(points)

    assert "a:A" == found["x"].value
