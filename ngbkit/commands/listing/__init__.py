"""Lists of devices, compilers and runs: plain rows for programs (devices.py, compilers.py, runs.py), text for people.

layout.py renders rows as text and HTML; an `Answer` has both.
"""

from __future__ import annotations

from ngbkit.commands.listing.answer import Answer
from ngbkit.commands.listing.compilers import (
    COMPILERS,
    answer_compilers,
    describe_compilers,
    list_compilers,
    summarize_compilers,
)
from ngbkit.commands.listing.devices import ACTIONS, DEVICES, answer_devices, check_devices, init_devices, list_devices
from ngbkit.commands.listing.layout import Row, to_html, to_html_sheets, to_sheets, to_text
from ngbkit.commands.listing.runs import RUNS, answer_runs, describe_failures, list_failures, list_runs

__all__ = [
    "ACTIONS",
    "COMPILERS",
    "DEVICES",
    "RUNS",
    "Answer",
    "Row",
    "answer_compilers",
    "answer_devices",
    "answer_runs",
    "check_devices",
    "describe_compilers",
    "describe_failures",
    "init_devices",
    "list_compilers",
    "list_devices",
    "list_failures",
    "list_runs",
    "summarize_compilers",
    "to_html",
    "to_html_sheets",
    "to_sheets",
    "to_text",
]
