"""The arguments of each magic, for its parser, its help, its completion and the panels."""

from __future__ import annotations

from collections.abc import Mapping

from ngbkit.commands import arguments, listing
from ngbkit.commands import selfcheck as selfcheck_arguments
from ngbkit.commands.cache import CACHE
from ngbkit.commands.capacity import OPTIONS as CAPACITY
from ngbkit.commands.inputs import INPUTS
from ngbkit.commands.optimize import OPTIMIZE
from ngbkit.commands.predict import PREDICT
from ngbkit.sweep.argument import Argument

PANELS = ("sweep", "devices", "explore")
DATA = Argument(flags=("data",), help="the variable of the dataset", completes="variable", settings={"metavar": "NAME"})
TABLES: Mapping[str, tuple[Argument, ...]] = {
    "ngbench": (
        *(arguments.WORKLOADS, *arguments.SWEEP, *arguments.BUDGET, arguments.ESTIMATE),
        *(*arguments.MODULE, arguments.OUT, arguments.BACKGROUND),
    ),
    "ngruns": (
        *(arguments.RUN, *arguments.RESUME, arguments.SETTLE_RUN),
        *(arguments.OUT, arguments.BACKGROUND, *listing.RUNS),
    ),
    "ngdevices": listing.DEVICES,
    "ngcompilers": listing.COMPILERS,
    "nginputs": (*INPUTS, *arguments.MODULE),
    "ngcache": CACHE,
    "ngcapacity": (DATA, *CAPACITY),
    "ngoptimize": OPTIMIZE,
    "ngpredict": PREDICT,
    "ngselfcheck": selfcheck_arguments.TABLE,
    "ngpanel": (
        Argument(
            flags=("panel",),
            help="sweep composes a sweep, measures it and shows its progress (the default); devices shows the engines, "
            "and starts and stops them; explore draws figures of a dataset and shows every detail of its trials",
            settings={"nargs": "?", "choices": PANELS, "default": PANELS[0], "metavar": "|".join(PANELS)},
        ),
        Argument(
            flags=("data",),
            help="explore: the variable of the dataset",
            completes="variable",
            settings={"nargs": "?", "metavar": "NAME"},
        ),
    ),
}
