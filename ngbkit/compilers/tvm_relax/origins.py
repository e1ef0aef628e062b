"""The ONNX nodes that each function of a network computes.

TVM's frontend drops the names of nodes, and its passes those of variables. So a network is imported once more, and
labels carry the nodes: first in the names of variables, and from legalisation on in those of functions, of which each
call has a copy of its own. The functions are then fused as before, and each has the labels of its parts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

_LABEL = re.compile(r"__node_(\d+)")
_VARIABLE = re.compile(r"node_(\d+)__")
# Numbers that make names of functions distinct.
_NUMBER = re.compile(r"\d+(?=_|$)")
_FUSED = "fused_"
# The passes after which each operator is a call of a function, and by which fused calls become one function.
_LEGALISED, _FLATTENED = "LegalizeOps", "FuseTIR"


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionCall:
    """A call of a function in a fused network.

    `operators` are what it computes, in TVM's words: ``("conv2d", "add", "relu")``; `nodes` the names of the ONNX nodes
    that these come from; `inputs` the indices of the calls whose values it reads.
    """

    operators: tuple[str, ...]
    nodes: tuple[str, ...]
    inputs: tuple[int, ...]

    def matches(self, name: str) -> bool:
        """Return whether a function of that name computes these operators."""
        return _strip(name).removeprefix(_FUSED).startswith("_".join(self.operators))


def trace(load: Callable[[], Any], target: Any, list_passes: Callable[[Any], Sequence[Any]]) -> list[FunctionCall]:
    """List the calls, in order, of the network that `load` imports and the passes of `list_passes` fuse."""
    with _record_conversions() as conversions:
        module = load()
    names = list(dict.fromkeys(name for name, _ in conversions))
    module = _label_variables(module, conversions, {name: index for index, name in enumerate(names)})
    with target:
        for step in list_passes(target):
            if step.info.name == _FLATTENED:
                break
            module = step(module)
            if step.info.name == _LEGALISED:
                module = _label_functions(module)
    return list(_list_calls(module, names))


@contextmanager
def _record_conversions() -> Iterator[list[tuple[str, Any]]]:
    """Record the name of each node that TVM's frontend converts, and the value that it becomes."""
    from tvm.relax.frontend.onnx import onnx_frontend

    importer = onnx_frontend.ONNXGraphImporter
    convert = importer._convert_operator
    conversions: list[tuple[str, Any]] = []

    def convert_recorded(self: Any, op_name: str, inputs: Any, attrs: Any, opset: int) -> Any:
        value = convert(self, op_name, inputs, attrs, opset)
        conversions.append((attrs["tvm_custom"]["name"], value))
        return value

    importer._convert_operator = convert_recorded
    try:
        yield conversions
    finally:
        importer._convert_operator = convert


def _label_variables(module: Any, conversions: Sequence[tuple[str, Any]], numbers: Mapping[str, int]) -> Any:
    """Name each variable of an imported network after the node whose conversion computes it."""
    from ngbkit.compilers.tvm_runtime import relax

    owners: dict[int, int] = {}
    for name, value in conversions:
        for part in _iterate_parts(value):
            owners.setdefault(part.__chandle__(), numbers[name])
    labels = _find_labels(module["main"], owners)

    @relax.expr_functor.mutator
    class Namer(relax.PyExprMutator):  # type: ignore[misc]
        def visit_var_binding_(self, binding: Any) -> None:
            variable, value = binding.var, self.visit_expr(binding.value)
            if variable.name in labels:
                kind = relax.DataflowVar if isinstance(variable, relax.DataflowVar) else relax.Var
                variable = kind(f"node_{labels[variable.name]}__{variable.name}", variable.ty)
                self.set_var_remap(binding.var, variable)
            self.builder_.emit_normalized(relax.VarBinding(variable, value))

    return _replace_main(module, Namer(module).visit_expr(module["main"]))


def _iterate_parts(value: Any) -> Iterator[Any]:
    from ngbkit.compilers.tvm_runtime import relax

    if isinstance(value, relax.Tuple):
        for part in value.fields:
            yield from _iterate_parts(part)
    elif isinstance(value, relax.Var | relax.Call | relax.TupleGetItem):
        yield value


def _find_labels(main: Any, owners: Mapping[int, int]) -> dict[str, int]:
    """Find the node of each variable: that of its value, or of the first that reads it in the same conversion."""
    from ngbkit.compilers.tvm_runtime import relax

    labels: dict[str, int] = {}
    readers: dict[str, int] = {}
    for binding in reversed(list(_iterate_bindings(main))):
        name = binding.var.name
        label = owners.get(binding.var.__chandle__(), owners.get(binding.value.__chandle__(), readers.get(name)))
        if label is None:
            continue
        labels[name] = label
        for source in relax.analysis.free_vars(binding.value):
            readers[source.name] = label
    return labels


def _label_functions(module: Any) -> Any:
    """Give each call of a function a copy of it, with a label in its name: that of the variable that it computes."""
    from ngbkit.compilers.tvm_runtime import relax

    labels: dict[int, str] = {}
    readers: dict[str, str] = {}
    for binding in reversed(list(_iterate_bindings(module["main"]))):
        prefix = _VARIABLE.match(binding.var.name)
        label = prefix[1] if prefix else readers.get(binding.var.name)
        if label is None:
            continue
        labels[binding.value.__chandle__()] = label
        for source in relax.analysis.free_vars(binding.value):
            readers[source.name] = label

    @relax.expr_functor.mutator
    class Copier(relax.PyExprMutator):  # type: ignore[misc]
        def visit_call_(self, call: Any) -> Any:
            label = labels.get(call.__chandle__())
            copied = self.visit_expr_post_order(call)
            if label is None or getattr(call.op, "name", "") != "relax.call_tir":
                return copied
            function = call.args[0]
            copy = module[function].with_attr("ngbkit.node", label)
            symbol = self.builder_.add_func(copy, f"{function.name_hint}__node_{label}")
            arguments = [symbol, *copied.args[1:]]
            return relax.Call(copied.op, arguments, copied.attrs, copied.ty_args, ret_ty=copied.ty)

    copier = Copier(module)
    main = copier.visit_expr(module["main"])
    return _replace_main(copier.builder_.get(), main)


def _replace_main(module: Any, main: Any) -> Any:
    from ngbkit.compilers.tvm_runtime import tvm

    functions = {symbol: function for symbol, function in module.functions_items() if symbol.name_hint != "main"}
    return tvm.IRModule({**functions, module.get_global_var("main"): main}, attrs=module.attrs)


def _list_calls(module: Any, names: Sequence[str]) -> Iterator[FunctionCall]:
    """Yield the calls of functions in `main`, in order."""
    from ngbkit.compilers.tvm_runtime import relax

    producers: dict[str, set[int]] = {}
    count = 0
    for binding in _iterate_bindings(module["main"]):
        sources = [producers.get(variable.name, set()) for variable in relax.analysis.free_vars(binding.value)]
        inputs = set().union(*sources)
        symbols = _list_functions(module, binding.value)
        producers[binding.var.name] = {count} if symbols else inputs
        if symbols:
            labels = dict.fromkeys(label for symbol in symbols for label in _LABEL.findall(symbol))
            yield FunctionCall(
                operators=tuple(map(_strip, symbols)),
                nodes=tuple(names[int(label)] for label in labels),
                inputs=tuple(sorted(inputs)),
            )
            count += 1


def _list_functions(module: Any, value: Any) -> list[str]:
    """List the names of the functions that a call executes: several if it is of a fused one."""
    from ngbkit.compilers.tvm_runtime import relax, tvm

    if not isinstance(value, relax.Call):
        return []
    if isinstance(value.op, tvm.ir.GlobalVar):
        inner = _iterate_bindings(module[value.op])
        return [name for binding in inner for name in _list_functions(module, binding.value)]
    if getattr(value.op, "name", "") in {"relax.call_tir", "relax.call_dps_packed"}:
        return [getattr(value.args[0], "name_hint", None) or str(value.args[0].global_symbol)]
    return []


def _iterate_bindings(function: Any) -> Iterator[Any]:
    for block in function.body.blocks:
        yield from block.bindings


def _strip(name: str) -> str:
    """Strip labels and numbers from the name of a function."""
    return _NUMBER.sub("", _LABEL.sub("", name))
