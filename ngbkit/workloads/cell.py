"""What a notebook cell, or a .py file, defines: it travels as source and is executed on the device.

The cell is only read here, never run: which models it binds, and which factors they take, is seen in its syntax.

>>> source = '''
... import torch
... def model(width, depth):
...     return torch.nn.Sequential(*[torch.nn.Linear(width, width) for _ in range(depth)])
... input_shape = lambda width: (width,)
... '''
>>> from_source(source)[0].takes
('width', 'depth')
"""

from __future__ import annotations

import ast
import hashlib
import inspect
import linecache
import sys
import traceback
import types
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ngbkit import options
from ngbkit.errors import WorkloadError
from ngbkit.workloads import feeds, files, inputs, signatures
from ngbkit.workloads.base import Factors, Network, Source, Workload
from ngbkit.workloads.randomise import randomise, run, seeded

if TYPE_CHECKING:
    import torch

_SUFFIX = ".py"
_FILENAME = "<ngbench cell>"
_INPUTS = ("inputs", "input_shape")
_MINIMAL = """A cell that can be measured, in full:

    import torch
    model = torch.nn.Linear(4, 2)
    input_shape = (4,)"""


def from_source(
    source: str, *, name: str = "model", filename: str = _FILENAME, factors: Iterable[str] = ()
) -> list[Workload]:
    """The workloads that a cell defines: its ``model``, or one for each key of its ``models``.

    ``model`` is a `torch.nn.Module`, or a function or class of the swept factors that gives one; ``models`` is a
    literal dict of these. ``input_shape`` is the shape of a sample (a tuple, a list of tuples for several inputs, a
    dict by input name, or a function of factors that gives one of these), or ``inputs`` holds tensors with a leading
    batch dimension, whose rows will be fed. With ``models``, either may be a dict by model name.

    Parameters
    ----------
    source
        The text of the cell.
    name
        The label of ``model``; those of ``models`` are called by their keys.
    filename
        What tracebacks call the cell.
    factors
        The names of the swept factors, all of which a model takes whose signature cannot be seen.

    Raises
    ------
    WorkloadError
        A syntax error, with the cell's line numbers in ``traceback``; no model or no inputs; names that cannot be read.
    """
    tree = _parse(source, filename)
    found = signatures.read(tree, tuple(factors))
    if found is None:
        raise WorkloadError(f"the cell binds neither `model` nor `models`. {_MINIMAL}")
    _check_inputs(tree)
    workloads = []
    for key, signature in found.items():
        spec = {"source": source, "filename": filename, "model": key}
        takes, optional = signature.takes, signature.optional
        workloads.append(Workload(name=key or name, source="cell", spec=spec, takes=takes, optional=optional))
    return workloads


def build(workload: Workload, factors: Factors) -> Network:
    """Execute the cell, seeded by the option `seed`, and build its model at these factors.

    Raises
    ------
    WorkloadError
        The cell raised, gave no module, or gave inputs that do not fit it; ``traceback`` holds the cell's own frames.
    """
    spec, seed = workload.spec, options.get_options()["seed"]
    with seeded(seed), _telling(spec["filename"]):
        cell = vars(_execute(spec["source"], spec["filename"]))
        maker = _find_maker(cell, spec["model"])
        module = _make(maker, workload.name, factors).cpu().eval()
        given = _find_inputs(cell, spec["model"], {**_defaults(maker), **factors})
        network = _network(module, *given)
        assert network.module is not None
        rows = len(next(iter(network.examples.values()), ())) or 2
        arrays = feeds.draw(network.inputs, network.examples, rows, seed)
        inputs.try_out(workload.name, network.module, network.inputs, arrays)
    called = network.module
    randomise(module, seed, lambda: run(called, arrays))
    return network


def parse(text: str) -> Workload | None:
    """The model that a file ending in ``.py`` defines."""
    if not text.endswith(_SUFFIX):
        return None
    path = Path(text).expanduser()
    try:
        source = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise WorkloadError(f"{text} cannot be read: {error}. A workload that ends in .py is a file.") from None
    found = from_source(source, name=path.stem, filename=path.name)
    if found[0].spec["model"] is not None:
        names = ", ".join(workload.name for workload in found)
        raise WorkloadError(
            f"{text} defines several models ({names}), and a word names one. Define `model` alone, or use "
            "Sweep(workloads=cell.from_source(source))."
        )
    return found[0]


def complete(prefix: str) -> Iterator[str]:
    """The Python files whose path starts with `prefix`."""
    return files.complete(prefix, _SUFFIX)


SOURCE = Source(
    name="cell",
    summary="what a notebook cell or a .py file defines",
    build=build,
    parse=parse,
    complete=complete,
)


def _parse(source: str, filename: str) -> ast.Module:
    try:
        with warnings.catch_warnings():
            # The cell's own, and shown where it runs: an invalid escape, an `is` with a literal.
            warnings.simplefilter("ignore", SyntaxWarning)
            warnings.simplefilter("ignore", DeprecationWarning)
            compile(source, filename, "exec", dont_inherit=True)  # sees more errors than the parser: a stray return
            return ast.parse(source, filename)
    except (SyntaxError, ValueError) as error:
        line = ""
        if isinstance(error, SyntaxError) and error.lineno:
            line = f", line {error.lineno}"
            error.text = (
                error.text or source.splitlines()[error.lineno - 1]
            )  # the compiler, unlike the parser, has none
        told = "".join(traceback.format_exception_only(error))
        raise WorkloadError(f"the cell does not parse: {error.args[0]} ({filename}{line}).", told) from None


def _check_inputs(tree: ast.Module) -> None:
    names = signatures.bindings(tree)
    bound = [name for name in _INPUTS if name in names]
    if not bound and "*" not in names:
        raise WorkloadError(f"the cell binds neither `inputs` nor `input_shape`. {_MINIMAL}")
    if len(bound) > 1:
        raise WorkloadError("the cell binds both `inputs` and `input_shape`; keep the one that is meant.")


def _execute(source: str, filename: str) -> types.ModuleType:
    name = f"ngbench_{hashlib.blake2b(source.encode(), digest_size=6).hexdigest()}"
    module = types.ModuleType(name)
    module.__file__ = filename
    # Tracebacks, and torch's own looks at source code, find the cell's lines by its file and its module.
    linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
    sys.modules[name] = module
    exec(compile(source, filename, "exec", dont_inherit=True), vars(module))
    return module


def _find_maker(cell: Mapping[str, Any], key: str | None) -> Any:
    name = "model" if key is None else "models"
    if name not in cell:
        raise WorkloadError(f"the cell ran and left `{name}` unbound. {_MINIMAL}")
    if key is None:
        return cell["model"]
    if not isinstance(cell["models"], Mapping) or key not in cell["models"]:
        raise WorkloadError(f"the cell ran, and `models` has no {key!r} any more; keep it the literal dict that it is.")
    return cell["models"][key]


def _make(maker: Any, name: str, factors: Factors) -> torch.nn.Module:
    import torch

    if isinstance(maker, torch.nn.Module):
        if factors:
            raise WorkloadError(
                f"{name} is a module already, and cannot vary {', '.join(factors)}. "
                f"Make it a function: def model({', '.join(factors)}): …"
            )
        return maker
    if not callable(maker):
        raise WorkloadError(
            f"{name} is a {type(maker).__name__}; valid is a torch.nn.Module, or a function that gives one."
        )
    made = maker(**factors)
    if not isinstance(made, torch.nn.Module):
        arguments = ", ".join(f"{key}={value:g}" for key, value in factors.items())
        raise WorkloadError(f"{name}({arguments}) gave a {type(made).__name__}; valid is a torch.nn.Module.")
    return made


def _defaults(maker: Any) -> dict[str, Any]:
    import torch

    if isinstance(maker, torch.nn.Module):
        return {}
    try:
        parameters = inspect.signature(maker).parameters.values()
    except (TypeError, ValueError):  # written in C
        return {}
    return {one.name: one.default for one in parameters if one.default is not one.empty}


def _find_inputs(cell: Mapping[str, Any], key: str | None, known: Mapping[str, Any]) -> tuple[str, Any]:
    import torch

    name = next((name for name in _INPUTS if name in cell), None)
    if name is None:
        raise WorkloadError(f"the cell ran and left `inputs` and `input_shape` unbound. {_MINIMAL}")
    given = cell[name]
    if key is not None and isinstance(given, Mapping) and key in given and set(given) <= set(cell["models"]):
        given = given[key]
    if not callable(given) or isinstance(given, torch.Tensor):
        return name, given
    parameters = inspect.signature(given).parameters
    missing = [one.name for one in parameters.values() if one.default is one.empty and one.name not in known]
    if missing:
        raise WorkloadError(
            f"{name} takes {', '.join(missing)}, which is no factor of this trial; "
            f"it has {', '.join(known) or 'none'}. Use the factors that the model takes."
        )
    return name, given(**{key: known[key] for key in parameters if key in known})


def _network(module: torch.nn.Module, kind: str, given: Any) -> Network:
    if kind == "input_shape":
        specs = inputs.from_shapes(given, module)
        return Network(inputs=specs, module=inputs.by_position(module, specs))
    specs, examples = inputs.from_values(given, module)
    return Network(inputs=specs, module=inputs.by_position(module, specs), examples=examples)


@contextmanager
def _telling(filename: str) -> Iterator[None]:
    """Turn what the cell raises into a `WorkloadError` that holds the traceback from the cell's own file onward."""
    try:
        yield
    except WorkloadError as error:
        if error.__cause__ is None:
            raise
        _, told = _locate(error.__cause__, filename)
        raise WorkloadError(str(error), told) from error.__cause__
    except (Exception, SystemExit) as error:
        where, told = _locate(error, filename)
        hint = ""
        if isinstance(error, NameError):
            hint = " A cell runs on the device by itself: import, or define in it, what it uses."
        raise WorkloadError(f"the cell raised {type(error).__name__}: {error}{where}.{hint}", told) from error


def _locate(error: BaseException, filename: str) -> tuple[str, str]:
    frames = [frame for frame in _frames(error.__traceback__) if frame.tb_frame.f_code.co_filename == filename]
    told = traceback.format_exception(type(error), error, frames[0] if frames else error.__traceback__)
    return f" ({filename}, line {frames[-1].tb_lineno})" if frames else "", "".join(told)


def _frames(frame: types.TracebackType | None) -> Iterator[types.TracebackType]:
    while frame is not None:
        yield frame
        frame = frame.tb_next
