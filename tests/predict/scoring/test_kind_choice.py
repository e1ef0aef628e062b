"""The labels choose the kind of a predictor: the cheapest whose errors are those of the best."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from learned import build_examples

from ngbkit import predict
from ngbkit.errors import UsageError
from ngbkit.predict import Examples
from ngbkit.predict.kinds.base import Floats, ignore_progress
from ngbkit.predict.scoring import kind_choice
from ngbkit.predict.scoring.splits import Fold


@pytest.fixture(scope="module")
def examples(tmp_path_factory: pytest.TempPathFactory) -> Examples:
    """Forty networks of five families, without variants."""
    built = build_examples(tmp_path_factory.mktemp("graphs"))
    return replace(built, parents=built.names, rules=("",) * len(built))


Score = Callable[[str, Examples, Fold, int, object], Floats]


def build_scores(errors: dict[str, float], calls: list[str]) -> Score:
    """Build scores that are the same for every network; they list the kinds that were tried."""

    def score(kind: str, examples: Examples, fold: Fold, _seed: int, _report: object) -> Floats:
        calls.append(kind)
        return np.full((len(fold[2]), len(examples.runtimes)), errors[kind])

    return score


def test_additive_labels_choose_prices(examples: Examples, tmp_path: Path) -> None:
    """Families are left out; the choice has the errors of each candidate, and a file keeps it; settings need a kind."""
    lines: list[str] = []
    fitted = predict.fit(examples.take(range(24)), folds=0, report=lambda _share, text: lines.append(text))

    assert isinstance(fitted.choice, kind_choice.KindChoice)
    assert ("linear", "linear", "family") == (fitted.model.kind, fitted.choice.kind, fitted.choice.split)
    assert ["linear", "boosting"] == list(fitted.choice.errors)
    assert str(fitted.choice) in lines
    assert "24 networks are fewer than 100" in str(fitted.choice)
    assert str(fitted.choice) == str(predict.load(fitted.save(tmp_path / "p.safetensors")).choice)
    with pytest.raises(UsageError, match="unexpected epochs with kind='auto'"):
        predict.fit(examples, epochs=3)


def test_a_dearer_kind_is_chosen_where_it_is_surely_better() -> None:
    """A difference that may be noise chooses the cheapest, unless it is larger than a twentieth."""
    generator = np.random.default_rng(0)
    cheap, noise = 0.1 + 0.02 * generator.standard_normal(200), 0.02 * generator.standard_normal(200)

    def choose(dear: Floats) -> str:
        errors = {"linear": cheap, "boosting": dear}
        return kind_choice.choose_cheapest(errors, {kind: float(each.mean()) for kind, each in errors.items()})

    assert "linear" == choose(cheap * 0.98)
    assert "boosting" == choose(cheap / 2)
    assert "boosting" == choose(0.962 * cheap + 0.1 * noise)
    # The same means, with differences that may be noise.
    assert ["linear", "boosting"] == [choose(share * cheap + 10 * (noise - noise.mean())) for share in (0.962, 0.94)]


@pytest.mark.parametrize(("error", "chosen", "parts"), [(0.12, "linear", 1), (0.05, "gnn", 5), (0.096, "linear", 5)])
def test_the_graph_network_has_to_earn_its_minutes(
    error: float, chosen: str, parts: int, examples: Examples, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is tried on one part, and on the others if it is better there; and chosen if the difference is no noise."""
    calls: list[str] = []
    scores = build_scores({"linear": 0.1, "boosting": 0.2, "gnn": error}, calls)
    monkeypatch.setattr(kind_choice, "_score", scores)
    monkeypatch.setitem(kind_choice._FEWEST, "gnn", len(examples))
    monkeypatch.setattr(kind_choice, "_EQUAL", 1.05)
    choice = kind_choice.choose_kind(examples, 0, ignore_progress)

    assert (chosen, parts) == (choice.kind, calls.count("gnn"))
    assert pytest.approx(error) == choice.errors["gnn"]
    assert ("gnn was left after one part" in str(choice)) == (parts == 1)
