"""The words of ``ngbkit optimize`` and ``%ngoptimize``."""

from __future__ import annotations

from ngbkit.commands.arguments import Argument, argument

OPTIMIZE: tuple[Argument, ...] = (
    argument(
        "network",
        metavar="NETWORK",
        completes="workload",
        help="what to rewrite: a timm name such as resnet18, an .onnx file, or a .py file that defines a model",
    ),
    argument(
        "--runtime",
        metavar="NAME",
        default="onnxruntime",
        completes="compiler",
        help="for which runtime, one that reads ONNX, with its options (default: onnxruntime)",
    ),
    argument(
        "--cost",
        metavar="NAME",
        default="flops",
        help="what leads the search: flops, which needs no measurement (the default); a file that predictor.save() "
        "wrote; or one of gnn, boosting, linear, operators, learned from --labels",
    ),
    argument("--labels", metavar="FILE", help="measurements to learn from: examples, or the dataset of a run"),
    argument("-b", "--batch-size", metavar="N", type=int, default=1, help="samples in a call (default: 1)"),
    argument("-d", "--device", metavar="NAME", completes="device", help="where to measure"),
    argument(
        "--rules",
        metavar="NAMES",
        help="which rewritings may be applied, separated by commas, such as merge-convs,fold-batchnorm (default: all)",
    ),
    argument(
        "--seconds",
        metavar="SECONDS",
        type=float,
        default=120.0,
        help="how long the search may take (default: 120)",
    ),
    argument("--top", metavar="N", type=int, default=3, help="candidates that are measured (default: 3)"),
    argument("-r", "--repeats", metavar="N", type=int, default=60, help="timed samples of each (default: 60)"),
    argument(
        "--no-guard",
        action="store_true",
        help="keep the cost model's first choice, whether or not it is faster: to see what that does",
    ),
    argument("-o", "--out", metavar="FILE", help="write the ONNX file that is kept"),
)
"""One table for both."""
