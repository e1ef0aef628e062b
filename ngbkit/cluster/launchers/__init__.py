"""How the engine of a device is started, one way a module: each has ``start(device, starter) -> Engine``.

They are found by entry point (group ``ngbkit.launchers``), so that a package can add a way of its own.
"""
