"""Bisections: gates between releases until the one that made a network slower is known.

search.py measures the gates, gate_log.py stores their runs so that a bisection can be continued, and outcome.py is the
result. `ngbkit.metrics.gates.change_points` chooses each probe, and tells when the answer is known.
"""
