"""The models of a notebook cell or a .py file, sent as source and executed on the device.

Here the cell is parsed and never run: its syntax shows the models that it binds and the factors that they take.

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
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ngbkit import options
from ngbkit.errors import WorkloadError
from ngbkit.user_text import format_value, parse_path
from ngbkit.workloads import files, inputs, signatures
from ngbkit.workloads.base import Factors, Network, Source, Workload
from ngbkit.workloads.randomise import seed_generators

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

    ``model`` is a `torch.nn.Module`, or a function or class of the swept factors that returns one; ``models`` is a
    literal dict of these. ``input_shape`` is the shape of a sample (a tuple, a list of tuples for several inputs, a
    dict by input name, or a function of factors that returns one of these), or ``inputs`` is tensors with a leading
    batch dimension, whose rows are fed: one, a tuple, or a dict by input name, nested as the module takes them; a
    scalar, or a tensor of one row beside others of more, is the same for every sample. With ``models``, either may be
    a dict by model name, and of a dict by input name each model gets the inputs that it takes.

    Parameters
    ----------
    source
        The text of the cell.
    name
        The label of ``model``; the labels of ``models`` are their keys.
    filename
        The cell's file name in tracebacks.
    factors
        The names of the swept factors; a model without a visible signature takes them all.

    Raises
    ------
    WorkloadError
        A syntax error, with the cell's line numbers in ``traceback``; no model, no inputs, or names that are not
        literal.
    """
    tree = _parse(source, filename)
    subject = _name_source(filename)
    models = signatures.read(tree, tuple(factors), subject)
    if models is None:
        raise WorkloadError(
            f"{subject} binds neither `model` nor `models`; {signatures.describe_candidates(tree)} {_MINIMAL}"
        )
    _check_inputs(tree, subject)
    workloads = []
    for key, signature in models.items():
        spec = {"source": source, "filename": filename, "model": key}
        takes, optional = signature.takes, signature.optional
        workloads.append(Workload(name=key or name, source="cell", spec=spec, takes=takes, optional=optional))
    return workloads


def build(workload: Workload, factors: Factors) -> Network:
    """Execute the cell, seeded by the option `seed`, and build its model; WorkloadError if that fails."""
    spec, seed = workload.spec, options.get_options()["seed"]
    subject = _name_source(spec["filename"])
    with (
        seed_generators(seed),
        _convert_errors(spec["filename"]),
        files.import_beside(workload.path),
        _own_arguments(workload.path or spec["filename"]),
    ):
        namespace = vars(_execute(spec["source"], spec["filename"], workload.path))
        maker = _find_maker(namespace, spec["model"], subject)
        module = _build_module(maker, workload.name, factors).cpu().eval()
        kind, values = _find_inputs(namespace, spec["model"], {**_read_defaults(maker), **factors}, subject)
        if kind == "input_shape":
            call = inputs.parse_shapes(values, module).with_batch(workload.batch_axis)
        else:
            call = inputs.parse_values(values, module, workload.batch_axis, shared=spec["model"] is not None)
        return inputs.build_network(workload.name, module, call, seed)


def list_surroundings(workload: Workload, folders: Iterable[str]) -> list[str]:
    """List the names of what only this machine may have for a cell: variables, modules beside it or in `folders`."""
    places = [Path(folder) for folder in (*folders, workload.path and str(Path(workload.path).parent)) if folder]
    tree = ast.parse(workload.spec["source"])
    local = [
        top
        for top in list_modules(tree)
        if any((place / f"{top}.py").exists() or (place / top).is_dir() for place in places)
    ]
    relative = [
        "." * node.level + (node.module or "")
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.level
    ]
    variables = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)} & {"environ", "getenv"}
    return sorted({*variables, *relative, *local})


def list_modules(tree: ast.AST) -> list[str]:
    """List the first names of the modules that code imports by their whole names."""
    modules: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            modules += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and not node.level:
            modules.append(node.module or "")
    return sorted({module.partition(".")[0] for module in modules})


def parse(text: str) -> Workload | None:
    """Parse the path of a file ending in ``.py`` that defines one model."""
    if not text.endswith(_SUFFIX):
        return None
    path = parse_path(text)
    try:
        source = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise WorkloadError(f"unreadable file {text}: {error}. Expected a Python file that defines `model`.") from None
    workloads = from_source(source, name=path.stem, filename=path.name)
    if workloads[0].spec["model"] is not None:
        names = ", ".join(workload.name for workload in workloads)
        raise WorkloadError(
            f"{text} defines several models ({names}); expected one. Define `model` alone, and "
            "each other model in a file of its own."
        )
    return replace(workloads[0], path=files.normalise(path))


SOURCE = Source(
    name="cell",
    summary="models of a notebook cell or a .py file",
    build=build,
    parse=parse,
    with_batch_axis=lambda workload, batch_axis: replace(workload, batch_axis=dict(batch_axis)),
    complete=partial(files.complete, suffix=_SUFFIX),
    text_factors=True,
)


def _parse(source: str, filename: str) -> ast.Module:
    try:
        with warnings.catch_warnings():
            # The device shows the cell's own warnings: an invalid escape, an `is` with a literal.
            warnings.simplefilter("ignore", SyntaxWarning)
            warnings.simplefilter("ignore", DeprecationWarning)
            compile(source, filename, "exec", dont_inherit=True)  # reports more errors than the parser: a stray return
            return ast.parse(source, filename)
    except (RecursionError, MemoryError):  # the parser's own stack
        raise WorkloadError(f"invalid syntax in {_name_source(filename)}: it nests too deeply.") from None
    except (SyntaxError, ValueError) as error:
        line = ""
        if isinstance(error, SyntaxError) and error.lineno:
            line = f" (line {error.lineno})"
            error.text = error.text or source.splitlines()[error.lineno - 1]  # compile() sets none, the parser does
        lines = "".join(traceback.format_exception_only(error))
        raise WorkloadError(f"invalid syntax in {_name_source(filename)}: {error.args[0]}{line}.", lines) from None


def _check_inputs(tree: ast.Module, subject: str) -> None:
    names = signatures.find_bindings(tree)
    kinds = [name for name in _INPUTS if name in names]
    if not kinds and "*" not in names:
        raise WorkloadError(f"{subject} binds neither `inputs` nor `input_shape`. {_MINIMAL}")
    if len(kinds) > 1:
        raise WorkloadError(f"{subject} binds both `inputs` and `input_shape`; expected one. Delete the other.")


def _execute(source: str, filename: str, path: str) -> types.ModuleType:
    name = f"ngbench_{hashlib.blake2b(source.encode(), digest_size=6).hexdigest()}"
    module = types.ModuleType(name)
    module.__file__ = path or filename
    module.__package__ = files.find_package(path) if path else ""
    # Tracebacks, and torch where it inspects source code, find the cell's lines by its file and its module.
    for file in (filename, module.__file__):
        linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    sys.modules[name] = module
    exec(compile(source, filename, "exec", dont_inherit=True), vars(module))
    return module


def _find_maker(namespace: Mapping[str, Any], key: str | None, subject: str) -> Any:
    name = "model" if key is None else "models"
    if name not in namespace:
        raise WorkloadError(f"{subject} ran without binding `{name}`. {_MINIMAL}")
    if key is None:
        return namespace["model"]
    if not isinstance(namespace["models"], Mapping) or key not in namespace["models"]:
        raise WorkloadError(f"{subject} changed `models`: no key {key!r} after it ran. Bind it to one literal dict.")
    return namespace["models"][key]


def _build_module(maker: Any, name: str, factors: Factors) -> torch.nn.Module:
    import torch

    if isinstance(maker, torch.nn.Module):
        if factors:
            raise WorkloadError(
                f"{name} is a module and cannot vary {', '.join(factors)}. "
                f"Define a function instead: def model({', '.join(factors)}): …"
            )
        return maker
    if not callable(maker):
        raise WorkloadError(
            f"invalid model {name}: got a {type(maker).__name__}; expected a torch.nn.Module, or a function that "
            "returns one."
        )
    module = maker(**factors)
    if not isinstance(module, torch.nn.Module):
        arguments = ", ".join(f"{factor}={format_value(value)}" for factor, value in factors.items())
        raise WorkloadError(f"{name}({arguments}) returned a {type(module).__name__}; expected a torch.nn.Module.")
    return module


def _read_defaults(maker: Any) -> dict[str, Any]:
    import torch

    if isinstance(maker, torch.nn.Module):
        return {}
    try:
        parameters = inspect.signature(maker).parameters.values()
    except (TypeError, ValueError):  # written in C
        return {}
    return {parameter.name: parameter.default for parameter in parameters if parameter.default is not parameter.empty}


def _find_inputs(
    namespace: Mapping[str, Any], key: str | None, factors: Mapping[str, Any], subject: str
) -> tuple[str, Any]:
    import torch

    kind = next((name for name in _INPUTS if name in namespace), None)
    if kind is None:
        raise WorkloadError(f"{subject} ran without binding `inputs` or `input_shape`. {_MINIMAL}")
    values = namespace[kind]
    if key is not None and isinstance(values, Mapping) and key in values and set(values) <= set(namespace["models"]):
        values = values[key]
    if not callable(values) or isinstance(values, torch.Tensor):
        return kind, values
    parameters = inspect.signature(values).parameters
    missing = [name for name, parameter in parameters.items() if parameter.default is parameter.empty]
    missing = [name for name in missing if name not in factors]
    if missing:
        raise WorkloadError(
            f"invalid arguments of {kind}: got {', '.join(missing)}; expected factors of this trial "
            f"({', '.join(factors) or 'it has none'}). Use the factors that the model takes."
        )
    return kind, values(**{name: factors[name] for name in parameters if name in factors})


def _name_source(filename: str) -> str:
    """Return the name of a cell or a file in messages."""
    return "the cell" if filename == _FILENAME else filename


@contextmanager
def _own_arguments(path: str) -> Iterator[None]:
    """Give code the arguments of a file that is run alone, for the block."""
    before, sys.argv = sys.argv, [path]
    try:
        yield
    finally:
        sys.argv = before


@contextmanager
def _convert_errors(filename: str) -> Iterator[None]:
    """Convert the errors of a cell to `WorkloadError`, with the traceback from the cell's own file onward."""
    try:
        yield
    except WorkloadError as error:
        if error.__cause__ is None:
            raise
        _, lines = _trace(error.__cause__, filename)
        raise WorkloadError(str(error), lines) from error.__cause__
    except (Exception, SystemExit) as error:
        location, lines = _trace(error, filename)
        hint = ""
        if isinstance(error, NameError) and filename == _FILENAME:
            hint = " A cell runs on the device without the rest of the notebook: import or define every name in it."
        if isinstance(error, SystemExit):
            hint = " It runs without arguments: give those that it parses a default, and end no process."
        text = f"{_name_source(filename)} raised {type(error).__name__}: {error}{location}.{hint}"
        raise WorkloadError(text, lines) from error


def _trace(error: BaseException, filename: str) -> tuple[str, str]:
    """Return the line of the cell that raised, and the traceback from the cell onward."""
    frames: list[types.TracebackType] = []
    frame = error.__traceback__
    while frame is not None:
        if frame.tb_frame.f_code.co_filename == filename:
            frames.append(frame)
        frame = frame.tb_next
    lines = traceback.format_exception(type(error), error, frames[0] if frames else error.__traceback__)
    return f" (line {frames[-1].tb_lineno})" if frames else "", "".join(lines)
