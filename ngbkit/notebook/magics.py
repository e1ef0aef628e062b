"""The magics: each reads its line, calls what `ngbkit` offers in Python, and shows what comes of it."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from IPython.core import error as ipython
from IPython.core import magic_arguments
from IPython.core.magic import Magics, line_cell_magic, line_magic, magics_class, no_var_expand

from ngbkit.commands import arguments, listing
from ngbkit.commands import selfcheck as selfcheck_arguments
from ngbkit.commands.arguments import Argument
from ngbkit.commands.cache_arguments import CACHE
from ngbkit.commands.optimize_arguments import OPTIMIZE
from ngbkit.errors import NgbkitError, UsageError, WorkloadError
from ngbkit.notebook import modules
from ngbkit.notebook.display import Drawing, Listing, when_ended
from ngbkit.notebook.sheets import Sheets
from ngbkit.runs.progress_display import common_failure, watch
from ngbkit.sweep import parsing

if TYPE_CHECKING:
    import pandas as pd
    from IPython.core.interactiveshell import InteractiveShell

    from ngbkit.dataset.storage import Data
    from ngbkit.notebook.panels import DevicesPanel, ExplorerPanel, SweepPanel
    from ngbkit.runs import Run
    from ngbkit.runs.selfcheck import SelfCheck
    from ngbkit.workloads.base import Workload

PANELS = ("sweep", "devices", "explore")
#: The arguments of each magic, for its parser, its help and its completion.
TABLES: Mapping[str, tuple[Argument, ...]] = {
    "ngbench": (
        *(arguments.WORKLOADS, *arguments.SWEEP, *arguments.BUDGET, *arguments.MODULE),
        *(arguments.OUT, arguments.BACKGROUND),
    ),
    "ngruns": (arguments.RUN, *arguments.RESUME, arguments.OUT, arguments.BACKGROUND, *listing.RUNS),
    "ngdevices": listing.DEVICES,
    "ngcompilers": listing.COMPILERS,
    "ngcache": CACHE,
    "ngoptimize": OPTIMIZE,
    "ngselfcheck": selfcheck_arguments.TABLE,
    "ngpanel": (
        Argument(
            flags=("panel",),
            help="sweep composes a sweep, measures it and shows it meanwhile (the default); devices shows the engines, "
            "and starts and stops them; explore draws figures of a dataset and tells all of its trials",
            settings={"nargs": "?", "choices": PANELS, "default": PANELS[0], "metavar": "|".join(PANELS)},
        ),
        Argument(
            flags=("data",),
            help="for explore: the variable that holds the dataset",
            completes="variable",
            settings={"nargs": "?", "metavar": "NAME"},
        ),
    ),
}
_VARIABLE = re.compile(r"\$(\w+)|\{([A-Za-z_]\w*)\}")
_Method = TypeVar("_Method", bound=Callable[..., Any])


def register(shell: InteractiveShell) -> None:
    """Give the magics to a shell."""
    shell.register_magics(Benchmarks)


def unregister(shell: InteractiveShell) -> None:
    """Take them away."""
    for kind in shell.magics_manager.magics.values():
        for name in TABLES:
            kind.pop(name, None)


def _magic(mark: Callable[..., Any]) -> Callable[[_Method], _Method]:
    """A method as a magic with the parser of its table, whose help becomes its docstring: ``%ngbench?``."""

    def decorate(method: _Method) -> _Method:
        for argument in reversed(TABLES[method.__name__]):
            magic_arguments.argument(*argument.flags, **argument.keywords)(method)  # type: ignore[no-untyped-call]
        magic_arguments.magic_arguments()(method)  # type: ignore[no-untyped-call]  # IPython's own, both
        no_var_expand(method)  # which would read the braces of compiler options; `_expand` takes its place
        mark(method)
        return method

    return decorate


class RunInterruptedError(KeyboardInterrupt):
    """Ctrl-C stopped a run, and later cells must not run as if it had ended. Shown in a line, without a traceback."""

    def _render_traceback_(self) -> list[str]:
        return [f"KeyboardInterrupt: {self}"]


@magics_class
class Benchmarks(Magics):
    """``%ngbench``, ``%ngruns``, ``%ngdevices``, ``%ngcompilers``, ``%ngcache``, ``%ngoptimize`` and others."""

    @_magic(line_cell_magic)
    def ngbench(self, line: str, cell: str | None = None) -> Any:
        """Measure networks with several compilers, and bind what was measured as one labelled dataset.

        In a cell, `model` (a torch module, or a function of the factors that returns one) and `input_shape` (of one
        sample) or `inputs` define a network; the cell runs on the device, once for each value of each factor.

        ::

            %ngbench resnet18 deit3_small_patch16_224 -c identity,onnxruntime,openvino -b 1,2,4,8 -r 50 -o ds

            %%ngbench -c identity,inductor,openvino -b 1,8 --factor width=64,96 --factor depth=1:6 -o ds
            import torch
            def model(width, depth):
                return torch.nn.Sequential(*[torch.nn.Conv2d(width, width, 3) for _ in range(depth)])
            input_shape = lambda width: (width, 56, 56)

        $name and {name} stand for the user's variables. Without -o the dataset is the value of the magic. Ctrl-C stops
        the run and keeps what was measured.
        """
        with _short_errors():
            asked = self._read(self.ngbench, line)
            workloads = [self._workload(word, asked) for word in asked.workloads]
            if cell is not None:
                workloads += _read_cell(cell, asked)
            sweep = arguments.to_sweep(asked, workloads)
            if asked.estimate:
                return sweep.estimate(asked.predictor)
            return self._carry_out(arguments.to_run(sweep, asked), asked)

    @_magic(line_magic)
    def ngruns(self, line: str) -> Any:
        """List the runs there were; go on with one that was stopped: only what is missing is measured; or say why
        trials of one failed.

        ::

            %ngruns --resume 20300101
            %ngruns --failures 20300101
        """
        from ngbkit.runs import find, read_sweep, resume

        with _short_errors():
            asked = self._read(self.ngruns, line)
            if asked.resume is None:
                return _shown(listing.see_to_runs(asked))
            if asked.failures is not None:
                raise UsageError("--resume measures, and --failures tells what was measured; give one of them.")
            engines = arguments.to_engines(asked.cluster, read_sweep(find(asked.resume)).devices)
            run = resume(asked.resume, retry=parsing.read_statuses(asked.retry), engines=engines)
            return self._carry_out(run, asked)

    @_magic(line_magic)
    def ngdevices(self, line: str) -> Listing:
        """List the devices that can be measured on, check them, or write a devices file to begin with.

        ::

            %ngdevices
            %ngdevices check orin
        """
        with _short_errors():
            asked = self._read(self.ngdevices, line)
            return Listing(listing.see_to_devices(asked.action, asked.names), "There is no device.")

    @_magic(line_magic)
    def ngcompilers(self, line: str) -> Listing:
        """List the compilers: what is here, its version and options, and what is missing and the command for it; or
        all about some of them.

        ::

            %ngcompilers
            %ngcompilers openvino
        """
        with _short_errors():
            return _shown(listing.see_to_compilers(self._read(self.ngcompilers, line)))

    @_magic(line_magic)
    def ngcache(self, line: str) -> Listing:
        """List what a device keeps between runs, clean it, or carry what tuning found to another device.

        ::

            %ngcache
            %ngcache clean --keep 5GB
        """
        from ngbkit.commands.cache import see_to_caches

        with _short_errors():
            return _shown(see_to_caches(self._read(self.ngcache, line)))

    @_magic(line_magic)
    def ngoptimize(self, line: str) -> Listing:
        """Rewrite a network for a runtime: found by a cost model, proved in float64, and measured before it is kept.

        ::

            %ngoptimize resnet18 --runtime openvino -o resnet18.onnx
            %ngoptimize model.onnx --cost gnn --labels labels.nc
        """
        from ngbkit.optimizer import see_to_optimizing

        with _short_errors():
            asked = self._read(self.ngoptimize, line)
            assert self.shell is not None
            drawing = Drawing(self.shell, with_table=False)
            try:
                return _shown(see_to_optimizing(asked, drawing.write))
            finally:
                drawing.clear()

    @_magic(line_magic)
    def ngselfcheck(self, line: str) -> SelfCheck | pd.DataFrame:
        """Say whether this machine is fit to measure on: its noise, and what can be told apart in it.

        A small block is measured against itself, in two processes a group, as two compilers would be. What is found is
        the value of the magic, and is stored with every later run.

        ::

            %ngselfcheck
            %ngselfcheck --groups 200 --hog
            %ngselfcheck --disturbances
        """
        from ngbkit.runs import selfcheck
        from ngbkit.runs.selfcheck import disturbances

        with _short_errors():
            asked = self._read(self.ngselfcheck, line)
            assert self.shell is not None
            drawing = Drawing(self.shell, with_table=False)
            try:
                if asked.disturbances:
                    told = selfcheck_arguments.to_disturbances(asked)
                    return disturbances.table(disturbances.measure(**told, tell=drawing.write))
                wanted = selfcheck_arguments.to_call(asked)
                return selfcheck.run(**wanted, wait=lambda run: self._wait(run, drawing), tell=drawing.write)
            except KeyboardInterrupt as interrupt:
                raise RunInterruptedError(str(interrupt)) from None
            finally:
                drawing.clear()

    @_magic(line_magic)
    def ngpanel(self, line: str) -> SweepPanel | DevicesPanel | ExplorerPanel:
        """Show a panel: a form in the place of a line.

        ::

            %ngpanel
            %ngpanel devices
            %ngpanel explore ds
        """
        from ngbkit.notebook.panels import DevicesPanel, ExplorerPanel, SweepPanel

        with _short_errors():
            asked = self._read(self.ngpanel, line)
            if asked.panel == "explore":
                return ExplorerPanel(self._dataset(asked.data), asked.data)
            if asked.data is not None:
                raise UsageError(
                    f"{asked.data!r} is too much: a panel of {asked.panel} takes no dataset, and explore does."
                )
            return SweepPanel() if asked.panel == "sweep" else DevicesPanel()

    def _dataset(self, name: str | None) -> Data:
        """The dataset that a variable of the notebook holds."""
        import xarray as xr

        held = {key: value for key, value in self._user_ns.items() if isinstance(value, (xr.Dataset, xr.DataTree))}
        if name is None or name not in held:
            known = (
                ", ".join(key for key in held if not key.startswith("_")) or "none: measure one, or ngbkit.load() it"
            )
            asked = "which dataset to explore was not said" if name is None else f"{name!r} holds no dataset"
            raise UsageError(f"{asked}; this notebook has {known}.")
        return held[name]

    def _wait(self, run: Run, drawing: Drawing) -> Data:
        """Wait for a run, drawing how far it is; its dataset."""
        try:
            watch(run, drawing.show)
        except KeyboardInterrupt:
            now = run.progress
            raise KeyboardInterrupt(
                f"stopped after {now.done} of {now.total} trials; they are kept. Go on with: %ngruns --resume {run.id} "
                f"and then: %ngselfcheck --run {run.id}"
            ) from None
        _raise_failure(run)
        return run.dataset()

    @property
    def _user_ns(self) -> dict[str, Any]:
        assert self.shell is not None
        namespace: dict[str, Any] = self.shell.user_ns
        return namespace

    def _read(self, magic: Any, line: str) -> argparse.Namespace:
        asked = arguments.parse(magic.parser, [self._expand(word) for word in parsing.split_words(line)])
        out = getattr(asked, "out", None)
        if out is not None and not out.isidentifier():
            raise UsageError(
                f"-o {out!r} is no name of a variable; `ngbkit.save(ds, 'out.nc')` writes a dataset to a file."
            )
        return asked

    def _expand(self, word: str) -> str:
        """The word with the user's variables filled in, for ``$name`` and ``{name}``; a list is joined by commas."""

        def fill(found: re.Match[str]) -> str:
            name = found[1] or found[2]
            if name not in self._user_ns:
                return found[0]
            value = self._user_ns[name]
            return ",".join(map(str, value)) if isinstance(value, (list, tuple, range)) else str(value)

        return _VARIABLE.sub(fill, word)

    def _workload(self, word: str, asked: argparse.Namespace) -> str | Workload:
        return modules.to_workload(word, self._user_ns, asked) if word in modules.find(self._user_ns) else word

    def _carry_out(self, run: Run, asked: argparse.Namespace) -> Run | Data | None:
        """Wait for a run, drawing it, and bind its dataset; or, in the background, let that happen by itself."""
        if asked.background:
            when_ended(run, lambda run: self._bind(run, asked.out))
            return run
        assert self.shell is not None
        try:
            watch(run, Drawing(self.shell).show)
        except KeyboardInterrupt:
            self._bind(run, asked.out)
            now = run.progress
            kept = f"`{asked.out}` holds them" if asked.out else "they are kept"
            raise RunInterruptedError(
                f"stopped after {now.done} of {now.total} trials; {kept}. Go on with: %ngruns --resume {run.id}"
            ) from None
        data = self._bind(run, asked.out)
        _raise_failure(run)
        return None if asked.out else data

    def _bind(self, run: Run, name: str | None) -> Data:
        data = run.dataset()
        if name is not None:
            self._user_ns[name] = data
        return data


def _shown(answer: listing.Answer) -> Listing:
    return (Sheets if answer.sheets else Listing)(answer.rows, answer.empty)


def _raise_failure(run: Run) -> None:
    """Say that a run failed, or that all its trials did for one reason, with the traceback of the user's own code."""
    if run.error is not None:
        raise run.error
    failure = common_failure(run)
    if failure is not None:
        files = [workload.spec.get("filename") for workload in run.sweep.workloads]
        own = failure.detail if any(file and file in failure.detail for file in files) else ""
        raise WorkloadError(f"no trial gave a result, all are {failure.status}: {failure.error}", own)


def _read_cell(source: str, asked: argparse.Namespace) -> list[Workload]:
    from ngbkit.workloads import cell

    named = {} if asked.name is None else {"name": asked.name}
    factors = list(parsing.read_factors(asked.factor or ()))
    # The user sees the magic's own line as the first of the cell, and tracebacks should name the lines that they see.
    return cell.from_source(f"\n{source}", factors=factors, **named)


@contextmanager
def _short_errors() -> Iterator[None]:
    """Errors as IPython shows wrong use: in a line, after the traceback of the user's own code where there is one."""
    try:
        yield
    except NgbkitError as error:
        own: str = getattr(error, "traceback", "")
        if own:
            sys.stderr.write(own if own.endswith("\n") else f"{own}\n")
        raise ipython.UsageError(str(error)) from None
