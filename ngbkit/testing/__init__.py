"""Tests of a compiler against the protocol, for its author: seeded networks and the conformance suite.

    from ngbkit.testing import CompilerConformance

    class TestMine(CompilerConformance):
        compiler = "mine"      # its entry point, or "my_package.compiler:COMPILER"

networks.py builds the networks, child.py compiles them, observation.py runs the children, alterations.py builds wrong
outputs, conformance.py asserts.
"""

from ngbkit.testing.conformance import CompilerConformance

__all__ = ["CompilerConformance"]
