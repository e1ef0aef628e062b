"""ONNX Runtime, held to the protocol."""

from ngbkit.testing import CompilerConformance


class TestOnnxRuntime(CompilerConformance):
    compiler = "onnxruntime"
