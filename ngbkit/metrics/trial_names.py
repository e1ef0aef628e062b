"""Names of trials, groups and networks in sentences."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ngbkit.dataset.long_form import list_labels
from ngbkit.dataset.storage import Data
from ngbkit.user_text import format_network

if TYPE_CHECKING:
    import pandas as pd


def name_places(data: Data, frame: pd.DataFrame) -> list[str]:
    """Name the device of each row, if there are several; the names of a row with it in ``where`` have it too."""
    has_devices = len(list_labels(data, "device")) > 1
    return [f" on {label}" if has_devices else "" for label in frame["device"]]


def name_trial(row: dict[Any, Any], factors: Sequence[str]) -> str:
    """Name a trial: ``inductor on net batch 1``."""
    return f"{row['compiler']} on {name_group(row, factors)}"


def name_group(row: dict[Any, Any], factors: Sequence[str]) -> str:
    """Name a group: ``net width=64 batch 1``."""
    return f"{name_network(row, factors)} batch {row['batch_size']}"


def name_network(row: dict[Any, Any], factors: Sequence[str]) -> str:
    """Name a network with the values of its factors: ``net width=64``."""
    values = {name: row[name] for name in factors if name in row and row[name] == row[name]}
    return f"{format_network(row['workload'], values)}{row.get('where', '')}"
