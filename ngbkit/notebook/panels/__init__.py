"""Panels: a form in the place of a line, for who would rather look than type.

A sweep panel (sweep.py) is the line that line.py writes, with form.py's controls, outlook.py's guess at how long it
will take, and live.py and grid.py for a run while it goes on. devices.py shows engines and starts and stops them. An
explorer (explorer.py) draws any figure, and trial.py tells all of one trial.
"""

from ngbkit.notebook.panels.devices import DevicesPanel
from ngbkit.notebook.panels.explorer import ExplorerPanel
from ngbkit.notebook.panels.sweep import SweepPanel

__all__ = ["DevicesPanel", "ExplorerPanel", "SweepPanel"]
