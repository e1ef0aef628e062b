"""Refusals of torch to export a network: the line of its code, the operator, the reason and a remedy, in a sentence."""

from __future__ import annotations

import linecache
import re
import sysconfig
import traceback
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

# How torch's errors begin that enclose the cause, or refer to another place for it.
_FRAMES = ("While executing", "Original traceback", "Failed to", "See the stack trace", "## ", "See also", "(Refer to")
_CELL = "<ngbench cell>"
_PLACE = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+)')
_PACKAGES = ("torch", "onnxscript", "onnx", "onnx_ir", "ngbkit")


def describe_refusal(error: BaseException) -> str:
    """Describe the place of a failed export, its reason, and the remedy."""
    from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode

    causes = _list_causes(error)
    node = next(filter(None, (_find_node(cause) for cause in causes)), None)
    places = [*_list_places(causes), *(_list_node_places(node) if node else [])]
    place = f"{_describe_place(*places[-1])}: " if places else ""
    if any(isinstance(cause, GuardOnDataDependentSymNode) for cause in causes):
        return (
            f"{place}a value that the network computes decides what runs. Decide by the shapes of inputs, or use "
            "torch.where or torch.cond"
        )
    if node is not None:
        return f"{place}`{node.target}` has no form in ONNX here. Compute it with other operators"
    return f"{place}{describe_cause(error)}"


def describe_cause(error: BaseException) -> str:
    """Return the first line of the innermost cause of an error that tells more than its type."""
    lines = (_find_sentence(str(cause)) for cause in reversed(_list_causes(error)))
    return next(filter(None, lines), type(error).__name__)


def _list_causes(error: BaseException) -> list[BaseException]:
    causes = [error]
    while (cause := causes[-1].__cause__) is not None and cause not in causes:
        causes.append(cause)
    return causes


def _find_sentence(text: str) -> str:
    """Return the first line of a text that is no frame around another message."""
    lines = (line.strip() for line in text.strip().splitlines())
    return next((line for line in lines if line and not line.startswith(_FRAMES)), "")


def _list_places(causes: list[BaseException]) -> list[tuple[str, int]]:
    """List the lines of a network's own code, and of its libraries, that an error passed, the innermost last."""
    frames = [each for cause in causes for each in traceback.walk_tb(cause.__traceback__)]
    return [(file, line) for frame, line in frames if _is_own(file := frame.f_code.co_filename)]


def _list_node_places(node: torch.fx.Node) -> list[tuple[str, int]]:
    """List the lines that a node of a traced graph comes from."""
    places = ((match["file"], int(match["line"])) for match in _PLACE.finditer(node.stack_trace or ""))
    return [(file, line) for file, line in places if _is_own(file)]


def _is_own(file: str) -> bool:
    folders = [sysconfig.get_path("stdlib"), *map(_locate_package, _PACKAGES)]
    is_library = "site-packages" in file or not file.startswith(folders[0])
    return file == _CELL or (
        not file.startswith("<") and is_library and not any(file.startswith(folder) for folder in folders[1:])
    )


def _locate_package(name: str) -> str:
    spec = find_spec(name)
    return f"{Path(spec.origin).parent}/" if spec and spec.origin else "<none>"


def _describe_place(file: str, line: int) -> str:
    name = "the cell" if file == _CELL else "/".join(Path(file).parts[-2:])
    code = linecache.getline(file, line).strip()
    return f"{name}, line {line}{f', `{code}`' if code else ''}"


def _find_node(error: BaseException) -> torch.fx.Node | None:
    """Find the node of a traced graph that an exporter had before it when it failed."""
    from torch import fx

    nodes = (frame.f_locals.get("node") for frame, _ in traceback.walk_tb(error.__traceback__))
    return next((node for node in nodes if isinstance(node, fx.Node)), None)
