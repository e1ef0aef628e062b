"""The numbers that a self-check is judged by."""

from __future__ import annotations

# The coverage that intervals claim.
LEVEL = 0.95
# The range in which our median latency over that of a vendor's tool should be.
TARGET = (0.97, 1.03)
