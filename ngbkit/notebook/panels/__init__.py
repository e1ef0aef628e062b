"""Panels: forms that do what a line of a magic does.

sweep.py     composes a sweep and runs it: form.py has the controls, line.py writes the line of %ngbench,
             live.py and grid.py show a run and its trials
devices.py   shows the devices; starts, stops and checks their engines
explorer.py  draws any figure of a dataset: picking.py reports clicks on marks, trial.py describes one trial
copying.py   a button that copies text, for both
"""

from ngbkit.notebook.panels.devices import DevicesPanel
from ngbkit.notebook.panels.explorer import ExplorerPanel
from ngbkit.notebook.panels.sweep import SweepPanel

__all__ = ["DevicesPanel", "ExplorerPanel", "SweepPanel"]
