"""The names of figures and datasets: words that readers know, and a name for each."""

from __future__ import annotations

import pytest

from ngbkit.publish.pages import NotebookNames

DIGEST, OTHER = "0123456789abcdef", "01234567ffffffff"


def test_figures_are_numbered_by_kind() -> None:
    """A figure's name has its notebook, its kind and its number, also without a provenance or with many parts."""
    names = NotebookNames("03-paper")
    provenances = [{"figure": "speedup"}, {}, {"figure": "break_even"}, {"figure": "speedup"}]
    provenances.append({"parts": [{"figure": "speedup"}, {"figure": "ase"}]})

    assert [
        "03-paper-speedup-1",
        "03-paper-chart-1",
        "03-paper-break_even-1",
        "03-paper-speedup-2",
        "03-paper-composition-1",
    ] == [names.name_figure(provenance) for provenance in provenances]


@pytest.mark.parametrize(
    ("code", "run", "expected"),
    [
        ("wide = ds.ngb.sel(width=[8])\nwide.ngb.plot.speedup()", "", "a-wide-01234567"),
        ('reference.table("VI").ngb.plot.speedup()', "20260101-0000-beef", "a-20260101-0000-beef-01234567"),
        ("draw()", "../etc", "a-..-etc-01234567"),
        ("draw()", "", "a-data-01234567"),
        ("draw()", ", ".join(f"20260101-0000-{number:04}" for number in range(40)), "a-40-runs-01234567"),
    ],
)
def test_a_dataset_has_the_name_of_its_variable(code: str, run: str, expected: str) -> None:
    """A dataset has the name of the variable that the cell draws, or else of its run, and no path of another folder."""
    assert {DIGEST: expected} == NotebookNames("a").name_datasets({"dataset": DIGEST, "run_id": run}, code)


def test_names_are_unique() -> None:
    """Datasets whose hashes begin alike, and notebooks that differ in a space, have other names."""
    names = NotebookNames("a")
    both = {"parts": [{"dataset": DIGEST}, {"dataset": OTHER}]}
    stems = names.name_datasets(both, "a.ngb.plot.ase() | b.ngb.plot.ase()\n")

    assert {DIGEST: "a-a-01234567", OTHER: "a-b-01234567"} == stems
    assert stems == names.name_datasets(both, "c.ngb.plot.ase()")
    equal = NotebookNames("a").name_datasets(both, "ds.ngb.plot.ase()")
    assert {DIGEST: "a-ds-01234567", OTHER: "a-ds-01234567ffffffff"} == equal
    prefixes = {NotebookNames(stem).name_figure({}) for stem in ("a-b", "a b", "a/b", " a b")}
    assert 4 == len(prefixes)
