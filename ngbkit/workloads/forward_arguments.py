"""The arguments of a module's ``forward``, compared with the inputs that a user gave."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

from ngbkit.errors import WorkloadError
from ngbkit.user_text import format_count

_OPEN_SHAPE = "(…)"
_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def check_arguments(
    name: str, signature: inspect.Signature, positional: Sequence[Any], keywords: Mapping[str, Any]
) -> None:
    """Raise `WorkloadError`, with the remedy, if a call with these inputs does not fit the signature of ``forward``."""
    try:
        signature.bind(*positional, **keywords)
    except TypeError as error:
        reason = str(error)
    else:
        return
    parameters = signature.parameters.values()
    ordered = [parameter.name for parameter in parameters if parameter.kind in _POSITIONAL]
    names = [parameter.name for parameter in parameters if parameter.kind in (*_POSITIONAL, parameter.KEYWORD_ONLY)]
    required = [each for each in names if signature.parameters[each].default is inspect.Parameter.empty]
    inputs = {**dict(zip(ordered, positional, strict=False)), **keywords}
    problems = [f"{each} is missing" for each in required if each not in inputs]
    problems += [f"{each} is none of its arguments" for each in keywords if each not in names]
    problems += [f"{len(positional) - len(ordered)} too many"] if len(positional) > len(ordered) else []
    raise WorkloadError(
        f"invalid inputs of {name}: got {_describe_inputs(positional, keywords, ordered)}; expected "
        f"{_describe_parameters(names, required)}; {', '.join(problems) or reason}. "
        f"{_advise([each for each in names if each in required or each in inputs], inputs, ordered)}"
    )


def _describe_inputs(positional: Sequence[Any], keywords: Mapping[str, Any], ordered: Sequence[str]) -> str:
    if len(positional) > len(ordered):
        return format_count(len(positional), "input")
    return ", ".join([*ordered[: len(positional)], *keywords]) or "none"


def _describe_parameters(names: Sequence[str], required: Sequence[str]) -> str:
    """Name the arguments of ``forward``, those with a default last."""
    optional = [each for each in names if each not in required]
    clauses = [", ".join(required) or "none"] + ([f"optionally {', '.join(optional)}"] if optional else [])
    return f"{' and '.join(clauses)}, the arguments of forward()"


def _advise(names: Sequence[str], inputs: Mapping[str, Any], ordered: Sequence[str]) -> str:
    """Write the inputs of a cell as shapes and as tensors, by name where ``forward`` takes no position."""
    if not names:
        return "Add the input to forward()."
    shapes = ", ".join(f'"{each}": {_format_shape(inputs.get(each))}' for each in names)
    tensors = f"({', '.join(names)}{',' if len(names) == 1 else ''})"
    if list(names) != list(ordered[: len(names)]):
        pairs = ", ".join(f'"{each}": {each}' for each in names)
        tensors = f"{{{pairs}}}"
    return f"Write input_shape = {{{shapes}}}, or give tensors: inputs = {tensors}."


def _format_shape(value: Any) -> str:
    """Format the shape of one sample of an input; of an unknown one with an ellipsis."""
    shape = tuple(getattr(value, "shape", ()))[1:]
    return f"({', '.join(map(str, shape))}{',' if len(shape) == 1 else ''})" if shape else _OPEN_SHAPE
