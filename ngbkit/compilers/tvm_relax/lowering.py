"""Lowers a network in Relax to its functions, and these to code."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

# Smaller constants, such as shapes and scalars, stay in the code.
_WEIGHT_BYTES = 1024


@dataclass(frozen=True, slots=True)
class Lowered:
    """A network lowered to scheduled functions."""

    executable: Any  # for a virtual machine: `main` takes the network's inputs and then its weights
    weights: Sequence[np.ndarray]  # in the order in which `main` takes them
    calls: Sequence[str]  # names of the functions that `main` calls


def fuse_default(module: Any, target: Any) -> Any:
    """Fuse a network into functions with TVM's default schedules for the target, untuned."""
    from ngbkit.compilers.tvm_runtime import relax, tvm

    passes = [*relax.pipeline.library_dispatch_passes(target), *relax.pipeline.legalize_passes(target)]
    with target:
        return tvm.transform.Sequential(passes)(module)


def fuse_for_tuning(module: Any, target: Any) -> Any:
    """The fused functions of a network without schedules; on a CPU, weights are laid out as each of them likes best."""
    from ngbkit.compilers.tvm_runtime import relax, tvm

    transform = relax.transform
    cpu = target.kind.name == "llvm"
    channels_last = tvm.transform.module_pass(lambda module, _: _set_channels_last(module), opt_level=0, name="Layout")
    passes = [
        transform.DecomposeOpsForInference(),
        transform.CanonicalizeBindings(),
        *((channels_last,) if cpu else ()),
        *relax.pipeline.library_dispatch_passes(target),
        transform.LegalizeOps(),
        transform.AnnotateTIROpPattern(),
        transform.FoldConstant(),
        transform.FuseOps(),
        transform.FuseTIR(),
        *((transform.AttachAttrLayoutFreeBuffers(),) if cpu else ()),
    ]
    with target:
        for step in passes:
            module = step(module)
    return module


def _set_channels_last(module: Any) -> Any:
    """Lay out the feature maps of convolutions with their channels last, if that works.

    The innermost loop of a convolution is then as long as the layer has channels, a whole number of vectors, whereas a
    late feature map is only 7 wide. The pass fails on some operators of transformers (`std::bad_alloc`), with or
    without convolutions: networks with such operators stay unchanged.
    """
    from ngbkit.compilers.tvm_runtime import relax, tvm

    transform = relax.transform
    passes = [transform.ConvertLayout({"relax.nn.conv2d": ["NHWC", "HWIO"]}), transform.CanonicalizeBindings()]
    try:
        return tvm.transform.Sequential(passes)(module)
    except Exception:  # noqa: BLE001  TVM raises error types of its own
        return module


def apply_schedules(module: Any, target: Any, database: Any) -> Any:
    """Apply the best schedules of a database, and lay out the weights as they require."""
    from ngbkit.compilers.tvm_runtime import relax, tvm

    transform = relax.transform
    with target, database:
        module = transform.MetaScheduleApplyDatabase()(module)
        if target.kind.name == "llvm":
            return tvm.transform.Sequential([transform.SplitLayoutRewritePreproc(), transform.FoldConstant()])(module)
        from tvm.s_tir import dlight

        # A function without a record has no threads bound, and does not compile.
        gpu = dlight.gpu
        rules = (gpu.Matmul(), gpu.GEMV(), gpu.Reduction(), gpu.GeneralReduction(), gpu.Fallback())
        return dlight.ApplyDefaultSchedule(*rules)(module)


def generate_code(module: Any, target: Any) -> Lowered:
    """Compile scheduled functions, with the weights separate from the code."""
    from ngbkit.compilers.tvm_runtime import relax, tvm

    module, weights = _extract_weights(module)
    calls = _find_calls(module["main"])
    transform = relax.transform
    # TVM's own list of these passes is unavailable for CPUs: its CPU backend does not export it.
    imperative = [
        transform.RewriteDataflowReshape(),
        transform.ToNonDataflow(),
        transform.RemovePurityChecking(),
        transform.CallTIRRewrite(),
    ]
    with target:
        module = tvm.transform.Sequential([*imperative, *relax.pipeline.finalize_passes(target)])(module)
    return Lowered(relax.build(module, target=target, relax_pipeline=None), weights, calls)


def _find_calls(function: Any) -> list[str]:
    """Find the functions that the virtual machine will call, reshapes included, which are built-in calls."""
    from ngbkit.compilers.tvm_runtime import relax

    names: list[str] = []

    def visit(expression: Any) -> None:
        if isinstance(expression, relax.Call):
            name = getattr(expression.op, "name", "")
            if name in {"relax.call_tir", "relax.call_dps_packed"}:
                names.append(getattr(expression.args[0], "name_hint", None) or expression.args[0].global_symbol)

    relax.analysis.post_order_visit(function, visit)
    return names


def _extract_weights(module: Any) -> tuple[Any, list[np.ndarray]]:
    """Replace the large constants of `main`, which link slowly, by new parameters, and return their values."""
    from ngbkit.compilers.tvm_runtime import relax, tvm

    weights: list[np.ndarray] = []
    parameters: list[Any] = []

    @relax.expr_functor.mutator
    class WeightExtractor(relax.PyExprMutator):  # type: ignore[misc]
        def visit_generic_const_(self, constant: Any) -> Any:
            if not hasattr(constant.value, "numpy"):
                return constant
            array = constant.value.numpy()
            if array.nbytes < _WEIGHT_BYTES:
                return constant
            weights.append(array)
            parameters.append(relax.Var(f"weight_{len(weights)}", constant.ty))
            return parameters[-1]

    main = module["main"]
    body = WeightExtractor(module).visit_expr(main.body)
    updated = relax.Function([*main.params, *parameters], body, main.ret_ty, main.is_pure, main.attrs)
    functions = {name: updated if name.name_hint == "main" else function for name, function in module.functions_items()}
    return tvm.IRModule(functions, attrs=module.attrs), weights
