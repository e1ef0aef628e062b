"""Inductor, held to the protocol."""

import pytest

from ngbkit.compilers import inductor
from ngbkit.testing import CompilerConformance, observe


class TestInductor(CompilerConformance):
    compiler = "inductor"


def test_facts_tell_graphs_breaks_and_cache() -> None:
    """The facts tell that one whole graph was captured, and that a fresh cache folder held nothing of it."""
    facts = observe("inductor")[0].facts

    assert (facts["graphs"], facts["graph_breaks"]) == (1, 0)
    assert facts["cache_hits"] == 0
    assert facts["cache_misses"] >= 1


@pytest.mark.parametrize(("cxx", "said"), [(None, "no g++ or clang++ is found"), ("nowhere++", "'nowhere++'")])
def test_a_missing_cxx_compiler_is_named(monkeypatch: pytest.MonkeyPatch, cxx: str | None, said: str) -> None:
    """Without a C++ compiler Inductor is unavailable, and says which one it looked for."""
    monkeypatch.setenv("CXX", cxx) if cxx else monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setattr(inductor.shutil, "which", lambda name: None)

    assert said in inductor.COMPILER.unavailable()
