"""The launchers of engines, a module each with ``start(device, starter) -> Engine``.

They are found by entry point (group ``ngbkit.launchers``), so a package can add its own.
"""
