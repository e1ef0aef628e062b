"""Ensembles of trees are rebuilt from checked numbers: LightGBM itself follows any index."""

from __future__ import annotations

import lightgbm
import numpy as np
import pytest

from ngbkit.predictor.kinds import trees


def train(rounds: int = 5) -> tuple[str, np.ndarray]:
    generator = np.random.default_rng(0)
    table = generator.random((200, 3))
    parameters = {"num_leaves": 6, "min_data_in_leaf": 3, "verbosity": -1, "num_threads": 1}
    data = lightgbm.Dataset(table, label=table[:, 0] * 2 + np.sin(9 * table[:, 1]))
    return lightgbm.train(parameters, data, num_boost_round=rounds).model_to_string(), table


@pytest.mark.parametrize("rounds", [1, 5])
def test_a_rebuilt_ensemble_predicts_the_same(rounds: int) -> None:
    """To the last bit."""
    text, table = train(rounds)
    expected = lightgbm.Booster(model_str=text).predict(table)

    np.testing.assert_array_equal(expected, lightgbm.Booster(model_str=trees.rebuild(text, 3)).predict(table))


def test_a_tree_of_one_leaf_is_rebuilt() -> None:
    """As of networks that all take the same time."""
    parameters = {"min_data_in_leaf": 3, "verbosity": -1}
    data = lightgbm.Dataset(np.ones((9, 3)), label=np.full(9, 0.25))
    text = lightgbm.train(parameters, data, num_boost_round=1).model_to_string()

    rebuilt = lightgbm.Booster(model_str=trees.rebuild(text, 3))

    assert [0.25] == rebuilt.predict(np.ones((1, 3))).tolist()


def replace_first(text: str, name: str, value: str) -> str:
    head, _, rest = text.partition(f"\n{name}=")
    return f"{head}\n{name}={value} {rest.partition(' ')[2]}"


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("left_child", "0", "leads outside of itself"),
        ("left_child", "99", "leads outside of itself"),
        ("right_child", "-99", "leads outside of itself"),
        ("split_feature", "3", "a column that does not exist"),
        ("split_feature", "-1", "a column that does not exist"),
        ("decision_type", "1", "no thresholds"),
        ("leaf_value", "1 1", "7 numbers of leaf_value; expected 6"),
        ("threshold", "many", "many"),
    ],
)
def test_a_tree_that_leads_elsewhere_is_refused(name: str, value: str, reason: str) -> None:
    """LightGBM would read memory of something else, walk in a circle, or end the process."""
    text, _ = train()

    with pytest.raises(ValueError, match=reason):
        trees.rebuild(replace_first(text, name, value), 3)


@pytest.mark.parametrize("text", ["", "tree\nversion=x\n", "tree\nversion=v4 Tree=0\n"])
def test_what_is_no_ensemble_is_refused(text: str) -> None:
    """Its version names the form of its trees."""
    with pytest.raises(ValueError, match="has no version"):
        trees.rebuild(text, 3)
