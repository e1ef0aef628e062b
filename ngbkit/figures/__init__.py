"""The figures: a dataset in, an altair chart out, one figure a file.

rows.py makes a row a trial of a dataset and a metric, lines.py a panel a network of those, captions.py what stands
above, marks.py and theme.py how all of them look; files.py writes a figure, renderer.py shows it in a notebook.
"""

from ngbkit.figures.ase import ase
from ngbkit.figures.break_even import break_even
from ngbkit.figures.bsr import bsr
from ngbkit.figures.cpu import cpu
from ngbkit.figures.depth import depth
from ngbkit.figures.files import save
from ngbkit.figures.heatmap import heatmap
from ngbkit.figures.latency import latency
from ngbkit.figures.overview import overview
from ngbkit.figures.reversals import reversals
from ngbkit.figures.roofline import roofline
from ngbkit.figures.speedup import speedup
from ngbkit.figures.status import status
from ngbkit.figures.throughput import throughput
from ngbkit.figures.traces import traces

__all__ = [
    "ase",
    "break_even",
    "bsr",
    "cpu",
    "depth",
    "heatmap",
    "latency",
    "overview",
    "reversals",
    "roofline",
    "save",
    "speedup",
    "status",
    "throughput",
    "traces",
]
