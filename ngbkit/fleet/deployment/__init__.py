"""Installs ngbkit on a device, and removes it; the device needs nothing but a Python.

deploy   -> wheel, wheelhouse -> remote -> onsite (on the device): venv, pip, a check of the result
removal  -> remote -> onsite (on the device): a list of the contents, and their removal
"""

from __future__ import annotations

# The extras with compilers, with the load generator, and with what installs releases; the others are the client's.
DEVICE_EXTRAS = (
    *("torch", "inductor", "aotinductor", "onnxruntime", "openvino", "tvm", "iree", "executorch"),
    *("onnxruntime-gpu", "tensorrt", "tensorrt-rtx", "loadgen", "releases"),
)
