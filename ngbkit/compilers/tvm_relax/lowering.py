"""From a network in Relax to the functions that it is made of, and from these to code."""

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
    """A network whose every operator is a function with a schedule.

    Parameters
    ----------
    executable
        What a virtual machine runs: `main` of the network's inputs and then its weights.
    weights
        The weights, in the order in which `main` takes them.
    calls
        The names of the functions that `main` calls.
    """

    executable: Any
    weights: Sequence[np.ndarray]
    calls: Sequence[str]


def fuse_default(module: Any, target: Any) -> Any:
    """The functions of an untuned network, fused, with TVM's default schedules for that target."""
    from ngbkit.compilers.tvm_runtime import relax, tvm

    passes = [*relax.pipeline.library_dispatch_passes(target), *relax.pipeline.legalize_passes(target)]
    with target:
        return tvm.transform.Sequential(passes)(module)


def fuse_for_tuning(module: Any, target: Any) -> Any:
    """The functions of a network, fused, laid out for tuning, and without schedules.

    On a CPU, weights may be laid out as each function likes best.
    """
    from ngbkit.compilers.tvm_runtime import relax, tvm

    transform = relax.transform
    cpu = target.kind.name == "llvm"
    fused = [
        *relax.pipeline.library_dispatch_passes(target),
        transform.LegalizeOps(),
        transform.AnnotateTIROpPattern(),
        transform.FoldConstant(),
        transform.FuseOps(),
        transform.FuseTIR(),
        *((transform.AttachAttrLayoutFreeBuffers(),) if cpu else ()),
    ]
    with target:
        for single in (transform.DecomposeOpsForInference(), transform.CanonicalizeBindings()):
            module = single(module)
        return tvm.transform.Sequential(fused)(_put_channels_last(module) if cpu else module)


def _put_channels_last(module: Any) -> Any:
    """Lay the feature maps of convolutions out with their channels last, where that works.

    The innermost loop of a convolution is then as long as the layer has channels, and a whole number of vectors, where
    a late feature map is 7 wide. The pass trips over some operators of transformers (`std::bad_alloc`), convolutions
    or not: a network with such operators stays as it is.
    """
    from ngbkit.compilers.tvm_runtime import relax, tvm

    transform = relax.transform
    passes = [transform.ConvertLayout({"relax.nn.conv2d": ["NHWC", "HWIO"]}), transform.CanonicalizeBindings()]
    try:
        return tvm.transform.Sequential(passes)(module)
    except Exception:  # noqa: BLE001  TVM raises errors of its own making, whatever went wrong
        return module


def apply_schedules(module: Any, target: Any, database: Any) -> Any:
    """The same functions with the best schedules of a database, their weights laid out as these want them."""
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
    """Compile functions that have schedules, and set the weights apart from the code."""
    from ngbkit.compilers.tvm_runtime import relax, tvm

    module, weights = _set_weights_apart(module)
    calls = _find_calls(module["main"])
    transform = relax.transform
    # TVM's own list of these is not to be had for CPUs: its CPU backend does not export it.
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
    """What the virtual machine will call; a reshape is a call to it as well, of something that it has built in."""
    from ngbkit.compilers.tvm_runtime import relax

    called: list[str] = []

    def visit(expression: Any) -> None:
        if isinstance(expression, relax.Call):
            name = getattr(expression.op, "name", "")
            if name in {"relax.call_tir", "relax.call_dps_packed"}:
                called.append(getattr(expression.args[0], "name_hint", None) or expression.args[0].global_symbol)

    relax.analysis.post_order_visit(function, visit)
    return called


def _set_weights_apart(module: Any) -> tuple[Any, list[np.ndarray]]:
    """Turn the large constants of `main` into parameters of its own.

    Code that holds its weights is linked slowly, and in memory thrice when it is loaded.
    """
    from ngbkit.compilers.tvm_runtime import relax, tvm

    weights: list[np.ndarray] = []
    parameters: list[Any] = []

    @relax.expr_functor.mutator
    class Apart(relax.PyExprMutator):  # type: ignore[misc]
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
    body = Apart(module).visit_expr(main.body)
    changed = relax.Function([*main.params, *parameters], body, main.ret_ty, main.is_pure, main.attrs)
    functions = {name: changed if name.name_hint == "main" else function for name, function in module.functions_items()}
    return tvm.IRModule(functions, attrs=module.attrs), weights
