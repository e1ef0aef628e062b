"""The client's connection to its devices: it starts or attaches engines, sends plans and passes events on.

runs.Run -> dispatch.Dispatch -> engines.acquire() -> launchers/… or attach() -> engine.Engine
                                                                   └-> ngbkit.device.plan, on the device
"""
