"""The hash of a built network: its inputs, its tensors, the code that it runs, and its calls of torch's operators.

Neither names of files nor comments, nor code that it does not reach, are part of it. Code of packages that were
imported before the build stands for itself by its name: these are hashed by their files.
"""

from __future__ import annotations

import dis
import enum
import hashlib
import re
import sys
import types
from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from ngbkit.workloads import feeds
from ngbkit.workloads.base import Network
from ngbkit.workloads.export import to_tensor

if TYPE_CHECKING:
    import numpy as np
    import torch

_SCALARS = (int, float, complex, str, bytes, bool, type(None), type(Ellipsis))
# Of a class, what its definition does not decide.
_CLASS_NOTES = frozenset(
    {"__module__", "__qualname__", "__dict__", "__weakref__", "__doc__", "__firstlineno__", "__static_attributes__"}
)
_VARIABLES = frozenset({*dis.haslocal, *dis.hasfree})
# Where a line of a script comes from.
_COMMENT = re.compile(r"#.*")
_GLOBALS = frozenset({"LOAD_GLOBAL", "LOAD_NAME"})


def hash_network(
    network: Network,
    called: torch.nn.Module,
    seed: int,
    imported: Collection[str],
    replaced: Iterable[tuple[str, Any]] = (),
) -> str:
    """Hash a built network; `imported` are the modules that were imported before it was built.

    Its copy is `called` once, on one sample, or on two if it does not take one. The functions that have `replaced` some
    of imported modules count as well.
    """
    walk = _Walk(imported=frozenset(imported))
    walk.add([spec.to_json() for spec in network.inputs], network.batch_size, network.baseline)
    walk.add_value(dict(network.examples))
    walk.add_value(network.module)
    for place, value in sorted(replaced, key=itemgetter(0)):
        walk.add(place)
        walk.add_value(value)
    walk.add(*_trace_calls(network, called, seed))
    return str(walk.hasher.hexdigest())


@dataclass(slots=True)
class _Walk:
    """Visits all that an object reaches, each thing once."""

    imported: Set[str]
    hasher: Any = field(default_factory=partial(hashlib.blake2b, digest_size=16))
    # The number of each visit, by identity; the objects stay alive, so that no other has one's identity.
    _visits: dict[int, tuple[int, object]] = field(default_factory=dict)

    def add(self, *facts: Any) -> None:
        self.hasher.update(repr(facts).encode(errors="surrogatepass"))

    def add_value(self, value: Any) -> None:
        if isinstance(value, _SCALARS):
            self.add(type(value).__name__, value)
            return
        if id(value) in self._visits:
            self.add("again", self._visits[id(value)][0])
            return
        self._visits[id(value)] = (len(self._visits), value)
        self._add_object(value)

    def _add_object(self, value: Any) -> None:
        import numpy as np
        import torch

        if isinstance(value, torch.Tensor):
            self._add_tensor(value)
        elif isinstance(value, np.ndarray):
            self._add_array(value)
        elif isinstance(value, (types.ModuleType, type, types.FunctionType)):
            self._add_definition(value)
        elif isinstance(value, types.MethodType):
            self._add_all("method", [value.__func__, value.__self__])
        elif isinstance(value, partial):
            self._add_all("partial", [value.func, value.args, value.keywords])
        elif isinstance(value, types.CodeType):
            self._add_code(value, {})
        elif isinstance(value, Mapping):
            self._add_all(type(value).__name__, [part for pair in value.items() for part in pair])
        elif isinstance(value, (Set, frozenset)):
            self.add("set", sorted(map(repr, value)))
        elif isinstance(value, Sequence):
            self._add_all(type(value).__name__, list(value))
        else:
            self._add_instance(value)

    def _add_all(self, kind: str, parts: Sequence[Any]) -> None:
        self.add(kind, len(parts))
        for part in parts:
            self.add_value(part)

    def _add_tensor(self, value: torch.Tensor) -> None:
        import torch

        self.add("tensor", str(value.dtype), tuple(value.shape), value.requires_grad, str(value.layout))
        is_plain = value.layout == torch.strided and type(value) in (torch.Tensor, torch.nn.Parameter)
        with torch.no_grad():
            if is_plain and not value.is_quantized:
                self.add(value.stride())
                data = value.detach().cpu().contiguous().reshape(-1)
                self.hasher.update(data.view(torch.uint8).numpy() if data.numel() else b"")
            else:  # sparse, quantised, or a subclass with tensors of its own
                dense = value.dequantize() if value.is_quantized else value.detach().to_dense()
                self.add(dense.tolist())

    def _add_array(self, value: np.ndarray) -> None:
        self.add("array", str(value.dtype), value.shape)
        self.hasher.update(repr(value.tolist()).encode() if value.dtype.hasobject else value.tobytes())

    def _add_definition(self, value: Any) -> None:
        """Add a class or function: that of a package by its name, any other by its code; of a module only its name."""
        module = getattr(value, "__module__", None)
        if isinstance(value, types.ModuleType):
            self.add("module", value.__name__ if value.__name__ in self.imported else "")
        elif self._is_named(value, module):
            self.add("name", module, value.__qualname__)
        elif isinstance(value, type):
            members = {name: member for name, member in vars(value).items() if name not in _CLASS_NOTES}
            self._add_all("class", [*value.__mro__[1:], members])
        else:
            cells = map(_read_cell, value.__closure__ or ())
            self._add_all("function", [value.__defaults__, value.__kwdefaults__, *cells])
            self._add_code(value.__code__, value.__globals__)

    def _is_named(self, value: Any, module: Any) -> bool:
        """Return whether a name in a package stands for this very class or function: code may be made while it runs."""
        if module not in self.imported and module != "builtins":
            return False
        target: Any = sys.modules.get(module)
        for name in value.__qualname__.split("."):
            target = getattr(target, name, None)
        return target is value or module == "builtins"

    def _add_code(self, code: types.CodeType, names: Mapping[str, Any]) -> None:
        """Add a code object, and what its global names stand for in place of these."""
        self.add("code", code.co_argcount, code.co_kwonlyargcount, code.co_flags)
        for instruction in dis.get_instructions(code):
            value = instruction.argval
            self.add(instruction.opname)
            if instruction.opname in _GLOBALS and value in names:
                self._add_global(names[value], code)
            elif isinstance(value, types.CodeType):
                self._add_code(value, names)
            else:  # a constant, the name of an attribute, the place of a jump; a local variable by its number
                self.add_value(instruction.arg if instruction.opcode in _VARIABLES else value)

    def _add_global(self, value: Any, code: types.CodeType) -> None:
        """Add what a global name stands for; of a module that the build imported, what the code takes from it."""
        self.add_value(value)
        if isinstance(value, types.ModuleType) and value.__name__ not in self.imported:
            for name in code.co_names:
                if name in vars(value):
                    self.add_value(vars(value)[name])

    def _add_instance(self, value: Any) -> None:
        """Add the state of an object and its class; an enumerated value, an operator and the like by their names."""
        import torch

        if isinstance(value, (enum.Enum, types.BuiltinFunctionType, types.MethodDescriptorType)):
            self.add(type(value).__name__, getattr(value, "__qualname__", str(value)), getattr(value, "__module__", ""))
            return
        kind = type(value)
        self.add_value(kind)
        for graph in ("inlined_graph", "graph"):  # of a script, in C++
            if isinstance(value, (torch.jit.ScriptModule, torch.jit.ScriptFunction)) and hasattr(value, graph):
                self.add(_COMMENT.sub("", str(getattr(value, graph))))
                break
        if isinstance(value, (property, classmethod, staticmethod)):
            parts = [value.fget, value.fset] if isinstance(value, property) else [value.__func__]
            self._add_all(kind.__name__, parts)
            return
        slots = [name for base in kind.__mro__ for name in _list_slots(base) if hasattr(value, name)]
        self.add_value({**getattr(value, "__dict__", {}), **{name: getattr(value, name) for name in slots}})


def _list_slots(kind: type) -> list[str]:
    slots = vars(kind).get("__slots__", ())
    return [name for name in ([slots] if isinstance(slots, str) else slots) if name not in ("__dict__", "__weakref__")]


def _read_cell(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not bound yet
        return None


def _trace_calls(network: Network, module: torch.nn.Module, seed: int) -> list[str]:
    """Call a network once and list its calls of operators: the arguments, where each comes from, and the results."""
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._pytree import tree_leaves
    from torch.utils.weak import WeakIdKeyDictionary

    class Trace(TorchDispatchMode):
        def __init__(self) -> None:
            super().__init__()  # type: ignore[no-untyped-call]
            self.calls: list[str] = []
            self.numbers: Any = WeakIdKeyDictionary()

        def describe(self, leaf: Any) -> str:
            if not isinstance(leaf, torch.Tensor):
                return repr(leaf) if isinstance(leaf, _SCALARS) else str(leaf)
            number = self.numbers.setdefault(leaf, len(self.numbers))
            return f"{number}:{leaf.dtype}{tuple(leaf.shape)}"

        def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            before = [self.describe(leaf) for leaf in tree_leaves((args, kwargs or {}))]
            result = function(*args, **(kwargs or {}))
            self.calls.append(f"{function} {before} {[self.describe(leaf) for leaf in tree_leaves(result)]}")
            return result

    problem: Exception | None = None
    for rows in (network.batch_size,) if network.batch_size else (1, 2):
        trace = Trace()
        tensors = [to_tensor(array) for array in feeds.draw(network.inputs, network.examples, rows, seed)]
        try:
            with torch.no_grad(), trace:
                module(*tensors)
        except Exception as error:  # noqa: BLE001  a module may raise anything; a program may refuse to be observed
            problem = problem or error
        else:
            return trace.calls
    return [f"not called: {type(problem).__name__}"]
