"""Colours as readers with a colour vision deficiency see them, and as a grey print has them.

The matrices are those of G. M. Machado, M. M. Oliveira, and L. A. F. Fernandes, "A physiologically-based model for
simulation of color vision deficiency" (IEEE TVCG 15(6), 2009), for a severity of 1.
"""

from __future__ import annotations

import numpy as np

VISIONS = {
    "protanopia": ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998)),
    "deuteranopia": ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.011820, 0.042940, 0.968881)),
    "tritanopia": ((1.255528, -0.076749, -0.178779), (-0.078411, 0.930809, 0.147602), (0.004733, 0.691367, 0.303900)),
    "grey": ((0.2126, 0.7152, 0.0722),) * 3,
}
_TO_XYZ = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])


def measure_difference(first: str, second: str, vision: str) -> float:
    """Measure the difference of two ``#rrggbb`` in a vision: CIE 1976, in which 2.3 is just noticeable."""
    return float(np.linalg.norm(_convert(first, vision) - _convert(second, vision)))


def _convert(colour: str, vision: str) -> np.ndarray:
    """Convert a colour to L*a*b*, as a vision has it."""
    channels = np.array([int(colour[start : start + 2], 16) / 255 for start in (1, 3, 5)])
    linear = np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)
    x, y, z = _TO_XYZ @ np.clip(np.array(VISIONS[vision]) @ linear, 0, 1) / _TO_XYZ.sum(axis=1)
    x, y, z = (
        value ** (1 / 3) if value > (6 / 29) ** 3 else value / (3 * (6 / 29) ** 2) + 4 / 29 for value in (x, y, z)
    )
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])
