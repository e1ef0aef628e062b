"""The registry: plugins are loaded by entry point, and a broken one affects no other."""

from __future__ import annotations

from importlib.metadata import EntryPoint, EntryPoints

import pytest

from ngbkit import registry
from ngbkit.compilers.base import Compiler
from ngbkit.errors import UnknownNameError
from ngbkit.workloads.base import Source

OURS = {"identity", "torchscript", "inductor", "onnxruntime", "openvino", "tvm", "tensorrt"}


def test_our_compilers_and_sources_are_loaded() -> None:
    """Each entry point loads a record of the same name."""
    compilers = registry.load_all(registry.COMPILERS)
    sources = registry.load_all(registry.WORKLOADS)

    assert set(compilers) >= OURS
    assert {"timm", "blocks", "onnx", "cell", "module"} <= set(sources)
    assert all(isinstance(compiler, Compiler) and compiler.name == name for name, compiler in compilers.items())
    assert all(isinstance(source, Source) and source.name == name for name, source in sources.items())


def test_a_third_party_compiler_needs_no_change_of_ngbkit() -> None:
    """The tests' own plugin is one file and one entry point."""
    assert "goes wrong: hang" == registry.load(registry.COMPILERS, "hang").summary


def test_an_unknown_compiler_offers_the_nearest() -> None:
    """The error names the command that lists them all."""
    with pytest.raises(UnknownNameError, match=r"Did you mean openvino\?.*ngbkit compilers"):
        registry.load(registry.COMPILERS, "opnvino")


@pytest.mark.parametrize(
    ("name", "valid"),
    [("eager", "identity"), ("torch.compile", "inductor"), ("ORT", "onnxruntime"), ("trt", "tensorrt")],
)
def test_a_compiler_by_its_other_name_is_recognised(name: str, valid: str) -> None:
    """The error offers ngbkit's name, and no list."""
    with pytest.raises(UnknownNameError, match=rf"unknown compiler '{name}'\. Did you mean {valid}\?"):
        registry.load(registry.COMPILERS, name)


def test_every_synonym_is_of_a_compiler() -> None:
    """A synonym of nothing would never be offered, and one that is a compiler's own name never needed."""
    names = set(registry.list_names(registry.COMPILERS))

    assert set(registry._COMPILER_SYNONYMS.values()) <= names
    assert not names & set(registry._COMPILER_SYNONYMS)


def test_a_preload_leaves_plugins_of_others_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fork server imports what ngbkit itself adds, and nothing else."""
    loaded: list[str] = []
    points = [("ours", "ngbkit.compilers.identity:COMPILER"), ("other", "ngbkit_other:COMPILER")]
    entry_points = {name: EntryPoint(name=name, value=value, group=registry.COMPILERS) for name, value in points}
    monkeypatch.setattr(registry, "list_entry_points", lambda _group: entry_points)
    monkeypatch.setattr(registry, "_load", lambda entry_point: loaded.append(entry_point.name))
    registry.preload(registry.COMPILERS)

    assert ["ours"] == loaded


def test_a_plugin_that_fails_to_import_is_left_out_with_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    """All other plugins are loaded."""
    broken = EntryPoint(name="broken", value="no_such_module:COMPILER", group=registry.COMPILERS)
    entry_points = {**registry.list_entry_points(registry.COMPILERS), "broken": broken}
    monkeypatch.setattr(registry, "list_entry_points", lambda group: entry_points)
    with pytest.warns(UserWarning, match=r"'broken' \(no_such_module:COMPILER\) failed to load"):
        loaded = registry.load_all(registry.COMPILERS)

    assert set(loaded) >= OURS
    assert "broken" not in loaded


def test_the_first_of_two_plugins_with_one_name_is_used() -> None:
    """A warning names the ignored one."""
    entry_points = EntryPoints([EntryPoint(name="x", value=value, group="g") for value in ("a:A", "b:B", "a:A")])
    with pytest.warns(UserWarning, match="a:A is used, b:B is ignored"):
        by_name = registry.drop_duplicates(entry_points)

    assert "a:A" == by_name["x"].value
