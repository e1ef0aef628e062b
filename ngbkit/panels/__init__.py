"""The panel: one widget that does what the lines of magics do.

page.py      the widget: its script, page.js, shows HTML of Python and reports what the user does
commands/    the magic that shows it
panel.py     puts the sections together, finds the run of its cell again, and shows it without a kernel
compose.py   the form that composes a sweep, of fields.py; line.py writes and reads the line of %ngbench
watch.py     follows a run: its progress, and the state of each trial
read.py      the results: result_table.py with its filters, figure_choice.py with the figure, trial.py and
             trial_sheet.py with the sheet of a trial, and exports.py with files to take away
devices.py   the devices and their engines
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ngbkit.exports import export_lazily

if TYPE_CHECKING:
    from ngbkit.panels.panel import Panel

__all__ = ["Panel"]

__getattr__, __dir__ = export_lazily(__name__, {"Panel": "panel"})
