"""Bisections: gates between releases until the one that made a network slower is known.

bisecting.py runs the gates and continues, and search.py chooses them and has the result.
`ngbkit.metrics.gates.change_points` chooses each probe, and tells when the answer is known.
"""
