"""The labels choose the kind of a predictor: the cheapest whose errors are those of the best."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from learned import build_examples

from ngbkit import predictor
from ngbkit.errors import UsageError
from ngbkit.predictor.scoring import kind_choice


def test_additive_labels_choose_prices(tmp_path: Path) -> None:
    """Families are left out; the choice tells the errors of each candidate; settings need a kind."""
    labels = build_examples(tmp_path).take(range(24))
    labels = replace(labels, parents=labels.names, rules=("",) * len(labels))
    lines: list[str] = []
    fitted = predictor.fit(labels, "auto", folds=0, report=lambda _share, text: lines.append(text))

    assert fitted.choice is not None
    assert ("linear", "linear", "family") == (fitted.model.kind, fitted.choice.kind, fitted.choice.split)
    assert {"linear", "boosting"} == set(fitted.choice.errors)
    assert str(fitted.choice) in lines
    with pytest.raises(UsageError, match="unexpected epochs with kind='auto'"):
        predictor.fit(labels, "auto", epochs=3)


def test_a_dearer_kind_is_chosen_where_it_is_surely_better() -> None:
    """A difference that may be noise chooses the cheapest, unless it is larger than a tenth."""
    generator = np.random.default_rng(0)
    cheap, noise = 0.1 + 0.02 * generator.standard_normal((200, 1)), 0.02 * generator.standard_normal((200, 1))
    choose = kind_choice.choose_cheapest

    assert "linear" == choose({"linear": cheap, "boosting": cheap * 0.98})
    assert "boosting" == choose({"linear": cheap, "boosting": cheap / 2})
    assert "boosting" == choose({"linear": cheap, "boosting": 0.94 * cheap + 0.1 * noise})
