"""The targets of labelled samples, and the function that says which outputs are right for them."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ngbkit.errors import UsageError, WorkloadError

NAMES = ("labels", "targets")
"""The arrays of labelled samples that have their targets, beside those of inputs."""
FUNCTION = "correct"
"""The entry that has the function, where the first output is no list of numbers by class."""

_REMEDY = (
    "Give integers from 0 for a network that returns a number for each class; or in a notebook a function "
    f"{FUNCTION}(outputs, targets) beside them, which returns a truth value for each sample."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Targets:
    """The targets of samples along the first dimension, with the source of the function; empty for that of classes."""

    values: np.ndarray
    function: str = ""

    def take(self, places: Sequence[int]) -> Targets:
        """Return the targets of some samples."""
        return Targets(values=self.values[list(places)], function=self.function)

    def compile(self) -> Callable[[Sequence[np.ndarray], np.ndarray], np.ndarray]:
        """Compile a function of outputs and targets to a truth value for each sample, or WorkloadError if it fails."""
        function = _compile(self.function) if self.function else _match_classes

        def judge(outputs: Sequence[np.ndarray], targets: np.ndarray) -> np.ndarray:
            try:
                answer = np.asarray(function(outputs[0] if len(outputs) == 1 else tuple(outputs), targets))
            except WorkloadError:
                raise
            except Exception as error:
                raise WorkloadError(
                    f"invalid evaluation data: {FUNCTION}() raised {type(error).__name__}: {error}. It sees NumPy as "
                    "np and what it imports itself."
                ) from error
            if answer.shape != targets.shape[:1] or answer.dtype.kind not in "bui":
                raise WorkloadError(
                    f"invalid evaluation data: got {answer.dtype} of shape {answer.shape} from {FUNCTION}(); expected "
                    f"a truth value for each of {len(targets)} samples."
                )
            return answer.astype(bool)

        return judge


def split(
    arrays: Mapping[str, np.ndarray], inputs: Sequence[str], network: str
) -> tuple[dict[str, np.ndarray], Targets]:
    """Split labelled samples into the values of inputs and their targets; UsageError if they have none."""
    name = next((name for name in NAMES if name in arrays and name not in inputs), None)
    if name is None or arrays[name].ndim == 0:
        raise UsageError(
            f"invalid evaluation data for {network}: got {', '.join(arrays)}; expected an array {' or '.join(NAMES)} "
            "beside those of inputs, with an entry for each sample."
        )
    function = "" if FUNCTION in inputs else str(arrays.get(FUNCTION, ""))
    extra = {name, *([FUNCTION] if function else [])}
    rest = {key: array for key, array in arrays.items() if key not in extra}
    return rest, Targets(values=arrays[name], function=function)


def to_source(value: Any) -> Any:
    """Return labelled samples whose function is its source, as an array can hold it; UsageError if it has none."""
    if not isinstance(value, Mapping) or not callable(value.get(FUNCTION)):
        return value
    try:
        source = textwrap.dedent(inspect.getsource(value[FUNCTION]))
        _compile(source)
    except (OSError, TypeError, SyntaxError, WorkloadError) as error:
        raise UsageError(
            f"invalid evaluation data: got {value[FUNCTION]!r} as {FUNCTION}; expected a function written with def, "
            "whose source is sent to the device."
        ) from error
    return {**value, FUNCTION: np.array(source)}


def _compile(source: str) -> Callable[[Any, np.ndarray], Any]:
    tree = ast.parse(source)
    if len(tree.body) != 1 or not isinstance(tree.body[0], ast.FunctionDef):
        raise WorkloadError(f"invalid evaluation data: {FUNCTION} is no function written with def.")
    names: dict[str, Any] = {"np": np}
    exec(compile(tree, f"<{FUNCTION}>", "exec"), names)  # the user's own function, as cells are their own networks
    function: Callable[[Any, np.ndarray], Any] = names[tree.body[0].name]
    return function


def _match_classes(outputs: Any, targets: np.ndarray) -> np.ndarray:
    """Return for which samples the first answer is the target."""
    first = outputs[0] if isinstance(outputs, tuple) else outputs
    if first.ndim != 2 or first.shape[1] < 2 or targets.ndim != 1 or targets.dtype.kind not in "iu":
        raise WorkloadError(
            f"invalid evaluation data: got {targets.dtype} targets of shape {targets.shape} for an output of shape "
            f"{first.shape}; expected an integer for each sample, the place of the largest number. {_REMEDY}"
        )
    if len(targets) and not 0 <= int(targets.min()) <= int(targets.max()) < first.shape[1]:
        raise WorkloadError(
            f"invalid evaluation data: got targets from {targets.min()} to {targets.max()} for an output of "
            f"{first.shape[1]} numbers; expected 0 to {first.shape[1] - 1}. {_REMEDY}"
        )
    matches: np.ndarray = first.argmax(1) == targets
    return matches
