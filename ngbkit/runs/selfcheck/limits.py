"""What a self-check measures by default, and the numbers that it is judged by."""

from __future__ import annotations

# The coverage that intervals claim.
LEVEL = 0.95
# The range in which our median latency over that of a vendor's tool should be.
TARGET = (0.97, 1.03)
# The compilers that are compared with identity: light ones that run on any CPU.
PARTNERS = ("onnxruntime", "openvino")
# What is distinguishable, is so in this share of the groups.
DETECTED = 0.9
