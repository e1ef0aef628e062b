"""The datasets that a notebook binds by -o, each compared with the one before."""

from __future__ import annotations

from drawn import measured, network
from IPython.core.interactiveshell import InteractiveShell

from ngbkit.notebook import completion
from ngbkit.notebook.bound_datasets import bind
from ngbkit.workloads.cell import from_source

CELL = "\nimport torch\nmodel = torch.nn.Linear(4, 2)\ninput_shape = (4,)\n"


def test_a_dataset_is_compared_with_the_one_before() -> None:
    """The latest dataset with a network in common is compared, and a different one is passed over."""
    shell = InteractiveShell()
    later = measured(*from_source(CELL.replace("2)", "8)")))
    later["latency"].loc[{"compiler": "openvino"}] *= 3
    before = [bind(shell, "it2", measured(*from_source(CELL))), bind(shell, "other", measured(network("net")))]
    changes = bind(shell, "it3", later)

    assert [None, None] == before
    assert changes is not None
    assert changes._repr_html_().startswith("<details open><summary>it3 against it2. throughput of 2 trials: 2 slower")
    assert "the cells differ" in changes._repr_html_()
    assert bind(InteractiveShell(), "it3", later) is None


def test_the_same_or_a_damaged_dataset_shows_nothing() -> None:
    """Measurements that were taken over are no change, and what cannot be compared is no error."""
    shell = InteractiveShell()
    data = measured(network("a"))

    assert [None, None] == [bind(shell, name, data) for name in ("it2", "it3")]
    assert bind(shell, "it4", data.drop_vars(["latency", "round"])) is None


def test_networks_beside_are_compared_and_not_remembered() -> None:
    """Earlier networks are compared with those beside them, and the next dataset with the new ones alone."""
    shell = InteractiveShell()
    changes = bind(shell, "it3", measured(network("net"), network("net (it2)")), "it2")
    later = measured(network("net"))
    later["latency"].loc[{"compiler": "openvino"}] *= 3
    following = bind(shell, "it4", later)

    assert changes is not None
    assert changes.comparison.runs.names == ("it2", "it3")
    assert following is not None
    assert ("it3", 0) == (following.comparison.runs.beside, following.comparison.missing)
    assert bind(InteractiveShell(), "", measured(network("net"), network("net (it2)")), "it2") is not None


def test_tab_offers_datasets_to_compare() -> None:
    """Tab completes a variable with a dataset, and no other variable."""
    names = {"it2": measured(network("a")), "item": 1}

    assert "it2" in completion.complete("ngcompare", "it", names)[1]
    assert "item" not in completion.complete("ngcompare", "it", names)[1]
