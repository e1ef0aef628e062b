"""Ensembles of decision trees, one per runtime, stored as LightGBM writes them and rebuilt from checked numbers.

LightGBM trusts the text of a model: it follows any index that is in it, and some errors end the process.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from ngbkit.errors import MissingDependencyError
from ngbkit.predictor.kinds.base import Floats

if TYPE_CHECKING:
    from typing import Self

    import lightgbm

Value = TypeVar("Value", int, float)

_TREE = re.compile(r"^Tree=\d+\n", re.MULTILINE)
_LINE = re.compile(r"^(\w+)=(.*)$", re.MULTILINE)
_VERSION = re.compile(r"^version=v\d+$", re.MULTILINE)
_PREFIX = "trees_"

# The parameters of training that every kind has. More threads than one gain little on so few rows, and wait for each
# other without end where other work has the cores.
_TRAINING: dict[str, Any] = {
    **{"objective": "regression_l1", "bagging_fraction": 0.8, "bagging_freq": 1, "feature_fraction": 0.5},
    **{"deterministic": True, "force_col_wise": True, "num_threads": 1, "verbosity": -1},
}


class Ensembles:
    """An ensemble of trees for each runtime that has one, which predicts logarithms."""

    def __init__(self, texts: Mapping[int, str] | None = None) -> None:
        self._texts = dict(texts or {})
        self._loaded: dict[int, lightgbm.Booster] = {}

    def __iter__(self) -> Iterator[int]:
        """Iterate over the indices of the runtimes that have an ensemble."""
        return iter(self._texts)

    def train(
        self,
        runtime: int,
        table: NDArray[np.float32],
        logs: Floats,
        weights: Floats,
        *,
        rounds: int,
        **parameters: float,
    ) -> None:
        """Fit the ensemble of a runtime by absolute errors, with LightGBM's `parameters` beside the usual ones."""
        # LightGBM rejects a bagging fraction of a single row.
        single = {"bagging_fraction": 1.0} if len(table) == 1 else {}
        lightgbm = load_library()
        data = lightgbm.Dataset(table, label=logs, weight=weights)
        booster = lightgbm.train({**_TRAINING, **single, **parameters}, data, num_boost_round=rounds)
        self._texts[runtime] = booster.model_to_string()
        self._loaded.pop(runtime, None)

    def predict(self, runtime: int, table: NDArray[np.float32]) -> Floats:
        """Return a logarithm per row."""
        if runtime not in self._loaded:
            self._loaded[runtime] = load_library().Booster(model_str=self._texts[runtime])
        return np.asarray(self._loaded[runtime].predict(table, num_threads=1))

    def dump(self) -> dict[str, NDArray[np.uint8]]:
        """Return the ensemble of each runtime as an array."""
        return {f"{_PREFIX}{runtime}": np.frombuffer(text.encode(), np.uint8) for runtime, text in self._texts.items()}

    @classmethod
    def restore(cls, arrays: Mapping[str, NDArray[Any]], columns: int, runtimes: int) -> Self:
        """Return what `dump` returned as ensembles again; ValueError if it is none of theirs."""
        texts = {
            int(name.removeprefix(_PREFIX)): rebuild(value.tobytes().decode(), columns)
            for name, value in arrays.items()
            if name.startswith(_PREFIX)
        }
        if max(texts, default=-1) >= runtimes:
            raise ValueError(f"{runtimes} runtimes do not fit {len(texts)} ensembles of trees")
        return cls(texts)


def load_library() -> Any:
    """Return LightGBM, or raise the error that names its extra."""
    try:
        import lightgbm
    except ImportError as error:
        raise MissingDependencyError("lightgbm", "predict") from error
    return lightgbm


def rebuild(text: str, columns: int) -> str:
    """Return an ensemble of the same predictions, without any part that they do not need.

    Raises
    ------
    ValueError
        A tree has missing or surplus numbers, splits on a column beyond `columns`, or leads in a circle.
    """
    header, *blocks = _TREE.split(text.partition("end of trees")[0])
    version = _VERSION.search(header)
    if version is None:
        raise ValueError("an ensemble of trees has no version")
    trees = (_rebuild_tree(dict(_LINE.findall(block)), columns) for block in blocks)
    lines = [
        *("tree", version[0], "num_class=1", "num_tree_per_iteration=1", "label_index=0"),
        *(f"max_feature_idx={columns - 1}", "objective=regression"),
        f"feature_names={' '.join(f'Column_{column}' for column in range(columns))}",
        f"feature_infos={' '.join(['none'] * columns)}",
        # LightGBM reads trees without their sizes one after another, and those with sizes in threads.
        *("", *(f"Tree={number}\n{tree}\n" for number, tree in enumerate(trees)), "end of trees", ""),
    ]
    return "\n".join(lines)


def _rebuild_tree(lines: Mapping[str, str], columns: int) -> str:
    leaves = int(lines["num_leaves"])
    if lines["num_cat"] != "0" or lines["is_linear"] != "0":
        raise ValueError("a tree has splits that are no thresholds")
    children = [_parse(lines, name, int, leaves - 1) for name in ("left_child", "right_child")]
    features = _parse(lines, "split_feature", int, leaves - 1)
    # The child -1 is the first leaf; other children come after their parent, so that no path has a circle.
    if not all(
        -leaves <= child < 0 or node < child < leaves - 1 for side in children for node, child in enumerate(side)
    ):
        raise ValueError("a tree leads outside of itself")
    if not all(0 <= feature < columns for feature in features):
        raise ValueError("a tree splits on a column that does not exist")
    numbers: dict[str, Sequence[int | float]] = {
        "num_leaves": [leaves],
        "num_cat": [0],
        "split_feature": features,
        "split_gain": [0] * (leaves - 1),
        "threshold": _parse(lines, "threshold", float, leaves - 1),
        "decision_type": _parse(lines, "decision_type", int, leaves - 1),
        "left_child": children[0],
        "right_child": children[1],
        "leaf_value": _parse(lines, "leaf_value", float, leaves),
        "is_linear": [0],
        "shrinkage": [1],
    }
    if not all(kind in _DECISIONS for kind in numbers["decision_type"]):
        raise ValueError("a tree has splits that are no thresholds")
    return "\n".join(f"{name}={' '.join(map(repr, values))}" for name, values in numbers.items()) + "\n"


# Bit 0 would be a categorical split; bit 1 is the side of a missing value, and bits 2 and 3 are what counts as missing.
_DECISIONS = frozenset(range(0, 12, 2))


def _parse(lines: Mapping[str, str], name: str, kind: Callable[[str], Value], count: int) -> list[Value]:
    values = [kind(word) for word in lines.get(name, "").split()]
    if len(values) != count:
        raise ValueError(f"a tree has {len(values)} numbers of {name}; expected {count}")
    return values
