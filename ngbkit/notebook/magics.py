"""The magics: each parses its line, calls the Python API, and displays the result."""

from __future__ import annotations

import argparse
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, cast

from IPython.core import magic_arguments
from IPython.core.magic import Magics, line_cell_magic, line_magic, magics_class, no_var_expand
from IPython.display import display as show

from ngbkit.commands import arguments, listing
from ngbkit.commands import selfcheck as selfcheck_arguments
from ngbkit.commands.cache import answer_cache
from ngbkit.commands.capacity import compute_capacities
from ngbkit.commands.inputs import answer_inputs
from ngbkit.commands.notices import list_notices
from ngbkit.commands.optimize import answer_optimize
from ngbkit.commands.predict import answer_predict
from ngbkit.commands.signals import ignore_interrupts
from ngbkit.errors import RunInterruptedError, UsageError
from ngbkit.notebook import modules, variables
from ngbkit.notebook.display import Listing, RunDisplay, call_at_end
from ngbkit.notebook.sheets import Sheets
from ngbkit.notebook.short_errors import HelpRequested, raise_failure, shorten_errors
from ngbkit.notebook.tables import TABLES
from ngbkit.runs.progress_display import describe_interrupt, explain_failure, watch
from ngbkit.sweep import parsing
from ngbkit.user_text import read_docstring

if TYPE_CHECKING:
    import pandas as pd
    from IPython.core.interactiveshell import InteractiveShell

    from ngbkit.dataset.storage import Data
    from ngbkit.metrics.serving.capacity import Capacities
    from ngbkit.notebook.panels import DevicesPanel, ExplorerPanel, SweepPanel
    from ngbkit.runs import Run
    from ngbkit.runs.selfcheck import History, SelfCheck
    from ngbkit.workloads.base import Workload

_Method = TypeVar("_Method", bound=Callable[..., Any])


def register(shell: InteractiveShell) -> None:
    """Register the magics with a shell."""
    shell.register_magics(Benchmarks)


def unregister(shell: InteractiveShell) -> None:
    """Remove the magics from a shell."""
    for kind in shell.magics_manager.magics.values():
        for name in TABLES:
            kind.pop(name, None)


def _magic(mark: Callable[..., Any]) -> Callable[[_Method], _Method]:
    """Turn a method into a magic with the parser of its table, whose help becomes the docstring: ``%ngbench?``.

    Its value is displayed too where the line drops it: in a function, in a loop, before other lines.
    """

    def decorate(method: _Method) -> _Method:
        @functools.wraps(method)
        def call(*arguments: Any) -> Any:
            with shorten_errors():
                value = method(*arguments)
                if value is not None and variables.is_dropped():
                    show(value)  # type: ignore[no-untyped-call]  # IPython's own
                return value

        call.__doc__ = read_docstring(method)
        for argument in reversed(TABLES[method.__name__]):
            magic_arguments.argument(*argument.flags, **argument.keywords)(call)  # type: ignore[no-untyped-call]
        magic_arguments.magic_arguments()(call)  # type: ignore[no-untyped-call]  # IPython's own, both
        no_var_expand(call)  # IPython would expand the braces of compiler options; `_expand` does not
        mark(call)
        return cast(_Method, call)

    return decorate


@magics_class
class Benchmarks(Magics):
    """``%ngbench``, ``%ngruns``, ``%ngdevices``, ``%ngcompilers``, ``%ngcache``, ``%ngcapacity`` and others."""

    @_magic(line_cell_magic)
    def ngbench(self, line: str, cell: str | None = None) -> Any:
        """Measure networks with several compilers, and bind the measurements as one labelled dataset.

        In a cell, `model` (a torch module, or a function of the factors that returns one) and `input_shape` (of one
        sample) or `inputs` define a network; the cell runs on the device, once for each value of each factor. Several
        networks are a dict, `models = {"small": small, "large": large}`: each key is one. The values of a factor are
        numbers or texts, `--factor variant=plain,residual`.

        ::

            %ngbench resnet18 deit3_small_patch16_224 -c identity,onnxruntime,openvino -b 1,2,4,8 -r 50 -o ds

            %%ngbench -c identity,inductor,openvino -b 1,8 --factor width=64,96 --factor depth=1:6 -o ds
            import torch
            def model(width, depth):
                return torch.nn.Sequential(*[torch.nn.Conv2d(width, width, 3) for _ in range(depth)])
            input_shape = lambda width: (width, 56, 56)

            %%ngbench -c identity,inductor --together -o ds
            import torch
            small, large = torch.nn.Linear(64, 64), torch.nn.Linear(64, 1024)
            models = {"small": small, "large": large}
            input_shape = (64,)

        $name and {name} insert variables, also those of a function; a list of networks is several networks. Without -o
        the dataset is the value of the magic, for a function to assign. Ctrl-C stops the run, and its measurements
        remain.
        """
        args = self._parse(self.ngbench, line)
        sweep = arguments.to_sweep(args, self._list_networks(args.workloads, cell, args))
        if args.estimate:
            return sweep.estimate(args.predictor, earlier=args.earlier)
        notices = list_notices(sweep, with_time=args.budget is None)
        return self._finish(arguments.to_run(sweep, args), args, notices)

    @_magic(line_magic)
    def ngruns(self, line: str) -> Any:
        """List the runs, resume one, or show why trials of one failed; resuming measures only the missing trials.

        ::

            %ngruns --resume 20300101
            %ngruns --settle 20300101
            %ngruns --failures 20300101
        """
        args = self._parse(self.ngruns, line)
        run_id = args.resume or args.settle
        if run_id is None and (args.retry or args.budget):
            raise UsageError("--retry and --budget say how to resume a run. Name it: %ngruns --resume ID.")
        if run_id is None:
            return _to_listing(listing.answer_runs(args))
        if not run_id:
            raise UsageError("--settle measures a run again. Name it: %ngruns --settle ID.")
        if args.failures is not None:
            raise UsageError("--resume measures and --failures only reports. Give one of them.")
        settling = arguments.to_settling(args, run_id)
        if settling is not None and not settling.trial_ids:
            print(settling.description)  # noqa: T201  the answer
            return None
        run = arguments.to_resumed_run(run_id, args, settling)
        return self._finish(run, args, [] if settling is None else [settling.description])

    @_magic(line_magic)
    def ngdevices(self, line: str) -> Listing:
        """List the devices, check them, or write a first devices file.

        ::

            %ngdevices
            %ngdevices check orin
        """
        args = self._parse(self.ngdevices, line)
        return Listing(listing.answer_devices(args.action, args.names), "No device.")

    @_magic(line_magic)
    def ngcompilers(self, line: str) -> Listing:
        """List the compilers, with versions, options and the command that installs a missing one; or describe some.

        ::

            %ngcompilers
            %ngcompilers openvino
        """
        return _to_listing(listing.answer_compilers(self._parse(self.ngcompilers, line)))

    @_magic(line_magic)
    def ngcache(self, line: str) -> Listing:
        """List the caches of a device, clean them, or carry results of tuning to another device.

        ::

            %ngcache
            %ngcache clean --keep 5GB
        """
        return _to_listing(answer_cache(self._parse(self.ngcache, line)))

    @_magic(line_magic)
    def ngcapacity(self, line: str) -> Capacities:
        """Say which rate of requests each network serves within a deadline, simulated or also by a real load.

        ::

            %ngcapacity ds --deadline 50ms
            %ngcapacity ds --deadline 50ms -c openvino --check
        """
        args = self._parse(self.ngcapacity, line)
        assert self.shell is not None
        display = RunDisplay(self.shell)
        try:
            return compute_capacities(args, variables.find_dataset(args.data, self._names), display.write)
        except KeyboardInterrupt as interrupt:
            raise RunInterruptedError(str(interrupt) or "stopped.", "magic") from None
        finally:
            display.clear()

    @_magic(line_magic)
    def ngoptimize(self, line: str) -> Listing:
        """Rewrite a network for a runtime: search with a cost model, prove in float64, and measure before keeping it.

        ::

            %ngoptimize resnet18 --runtime openvino -o resnet18.onnx
            %ngoptimize model.onnx --cost gnn --labels labels.nc
        """
        args = self._parse(self.ngoptimize, line)
        assert self.shell is not None
        display = RunDisplay(self.shell)
        try:
            return _to_listing(answer_optimize(args, display.write))
        finally:
            display.clear()

    @_magic(line_magic)
    def ngpredict(self, line: str) -> Listing:
        """Predict the latency of networks, or fit a predictor to labels and say how good it is.

        ::

            %ngpredict --fit labels.csv -o predictor.safetensors
            %ngpredict resnet34 model.onnx -b 1,8 --predictor predictor.safetensors
        """
        args = self._parse(self.ngpredict, line)
        assert self.shell is not None
        display = RunDisplay(self.shell)
        try:
            *others, answer = answer_predict(args, display.write).values()
        finally:
            display.clear()
        for other in others:
            show(_to_listing(other))  # type: ignore[no-untyped-call]  # IPython's
        return _to_listing(answer)

    @_magic(line_magic)
    def ngselfcheck(self, line: str) -> SelfCheck | History | pd.DataFrame:
        """Check whether this machine is fit to measure on: its noise, and the smallest speed-up beyond that noise.

        The check measures a small block against itself, in two processes a group, as it would measure two compilers,
        and beside them other compilers. The result is the value of the magic, and is stored with every later run.

        ::

            %ngselfcheck
            %ngselfcheck --groups 200 --hog
            %ngselfcheck --history
            %ngselfcheck --disturbances
        """
        from ngbkit.runs import selfcheck
        from ngbkit.runs.selfcheck import disturbances

        args = self._parse(self.ngselfcheck, line)
        assert self.shell is not None
        display = RunDisplay(self.shell)
        try:
            if args.disturbances:
                settings = selfcheck_arguments.to_disturbances(args)
                return disturbances.table(disturbances.measure(**settings, tell=display.write))
            if args.history:
                selfcheck_arguments.check_history(args)
                return selfcheck.compare_runs()
            settings = selfcheck_arguments.to_call(args)
            return selfcheck.run(**settings, wait=lambda run: self._wait(run, display), tell=display.write)
        except KeyboardInterrupt as interrupt:
            raise RunInterruptedError(str(interrupt), "magic") from None
        finally:
            display.clear()

    @_magic(line_cell_magic)
    def nginputs(self, line: str, cell: str | None = None) -> Listing:
        """Show what networks take before measuring: the batch, factors, and the values of each input.

        Networks are those of `%ngbench`, also modules of the notebook and models of a cell.

        ::

            %nginputs decoder.onnx --factor past_sequence_length=128
            %nginputs recurrent.onnx --batch-axis state=1,rate=none --inputs values.npz
        """
        args = self._parse(self.nginputs, line)
        return _to_listing(answer_inputs(args, self._list_networks(args.networks, cell, args)))

    @_magic(line_magic)
    def ngpanel(self, line: str) -> SweepPanel | DevicesPanel | ExplorerPanel:
        """Show a panel: a form that composes a sweep, the devices, or an explorer of a dataset.

        ::

            %ngpanel
            %ngpanel devices
            %ngpanel explore ds
        """
        from ngbkit.notebook.panels import DevicesPanel, ExplorerPanel, SweepPanel

        args = self._parse(self.ngpanel, line)
        if args.panel == "explore":
            return ExplorerPanel(variables.find_dataset(args.data, self._names), args.data)
        if args.data is not None:
            raise UsageError(
                f"unexpected argument {args.data!r}: the {args.panel} panel shows no dataset. "
                f"Use %ngpanel explore {args.data}."
            )
        return SweepPanel() if args.panel == "sweep" else DevicesPanel()

    def _wait(self, run: Run, display: RunDisplay) -> Data:
        """Wait for a run, display its progress, and return its dataset."""
        try:
            watch(run, display.show)
        except KeyboardInterrupt:
            raise KeyboardInterrupt(describe_interrupt(run, then=selfcheck_arguments.REPORT)) from None
        raise_failure(run)
        return run.dataset()

    @property
    def _names(self) -> Mapping[str, Any]:
        """The variables in the scope of the line."""
        assert self.shell is not None
        return variables.find_scope(self.shell).names

    def _parse(self, magic: Any, line: str) -> argparse.Namespace:
        words = parsing.split_words(line)
        if {"-h", "--help"} & {*words}:
            raise HelpRequested(magic.__doc__)
        assert self.shell is not None
        scope = variables.find_scope(self.shell)
        # The errors of the parser that IPython makes are IPython's, which no front end stores.
        parser = arguments.build_parser(f"%{magic.__name__}", TABLES[magic.__name__])
        args = arguments.parse(parser, [variables.expand(word, scope) for word in words])
        for action in parser._actions:
            if action.nargs == "*" and not action.option_strings:
                setattr(args, action.dest, variables.split_values(getattr(args, action.dest)))
        if isinstance(cluster := getattr(args, "cluster", None), str):
            args.cluster = variables.find_cluster(cluster, scope.names)
        out = args.out if arguments.OUT in TABLES[magic.__name__] else None
        if out is not None and scope.function:
            raise UsageError(
                f"invalid -o {out}: got it in {scope.function}, whose variables no magic can bind. Assign the value "
                f"instead: {out} = %{magic.__name__} …, without -o."
            )
        if out is not None and not out.isidentifier():
            raise UsageError(
                f"invalid variable name -o {out!r}; expected a name such as ds. "
                "`ngbkit.save(ds, 'out.nc')` writes a dataset to a file."
            )
        return args

    def _list_networks(self, words: Sequence[str], cell: str | None, args: argparse.Namespace) -> list[str | Workload]:
        """List the networks of a line and of its cell; files of values replace variables that `--inputs` names."""
        names = self._names
        networks = modules.to_workloads(words, names, args)
        needs_files = cell is not None or any(isinstance(network, str) for network in networks)
        args.inputs = modules.store_inputs(args.inputs, names) if needs_files else None
        return networks if cell is None else [*networks, *_parse_cell(cell, args)]

    def _finish(self, run: Run, args: argparse.Namespace, notices: Sequence[str] = ()) -> Run | Data | None:
        """Wait for a run, display it and bind its dataset; with --background bind that later and return the run."""
        if args.background:
            call_at_end(run, lambda run: self._bind(run, args.out))
            return run
        assert self.shell is not None
        display = RunDisplay(self.shell, () if run.is_replay else notices)
        try:
            watch(run, display.show)
        except KeyboardInterrupt:
            with ignore_interrupts():
                display.show_results(run, self._bind(run, args.out))
            raise RunInterruptedError(describe_interrupt(run, args.out), "magic") from None
        data = self._bind(run, args.out)
        is_value = not args.out and run.state == "finished" and explain_failure(run) is None
        # The display of a dataset has the same tables.
        display.show_results(run, data, with_tables=not is_value)
        raise_failure(run)
        return data if is_value else None

    def _bind(self, run: Run, name: str | None) -> Data:
        data = run.dataset()
        if name is not None:
            assert self.shell is not None
            self.shell.user_ns[name] = data
        return data


def _to_listing(answer: listing.Answer) -> Listing:
    return (Sheets if answer.sheets else Listing)(answer.rows, answer.empty, answer.notes)


def _parse_cell(source: str, args: argparse.Namespace) -> list[Workload]:
    from ngbkit.workloads import cell

    label = {} if args.name is None else {"name": args.name}
    factors = list(parsing.parse_factors(args.factor or ()))
    # The line of the magic is the first of the cell: the blank line keeps the line numbers of tracebacks right.
    return cell.from_source(f"\n{source}", factors=factors, **label)
