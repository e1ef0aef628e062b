"""What there is: the devices, compilers and runs that the notebook and the shell list, as rows.

devices.py, compilers.py and runs.py make plain rows, for programs; layout.py writes rows for people; an answer.py has
both.
"""

from __future__ import annotations

from ngbkit.commands.listing.answer import Answer
from ngbkit.commands.listing.compilers import (
    COMPILERS,
    describe_compilers,
    list_compilers,
    see_to_compilers,
    write_compilers,
)
from ngbkit.commands.listing.devices import ACTIONS, DEVICES, check_devices, init_devices, list_devices, see_to_devices
from ngbkit.commands.listing.layout import Row, to_html, to_html_sheets, to_sheets, to_text
from ngbkit.commands.listing.runs import RUNS, describe_failures, list_failures, list_runs, see_to_runs

__all__ = [
    "ACTIONS",
    "COMPILERS",
    "DEVICES",
    "RUNS",
    "Answer",
    "Row",
    "check_devices",
    "describe_compilers",
    "describe_failures",
    "init_devices",
    "list_compilers",
    "list_devices",
    "list_failures",
    "list_runs",
    "see_to_compilers",
    "see_to_devices",
    "see_to_runs",
    "to_html",
    "to_html_sheets",
    "to_sheets",
    "to_text",
    "write_compilers",
]
