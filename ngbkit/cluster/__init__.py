"""The client's way to its devices: engines started or attached, plans sent, events passed on.

runs.Run -> dispatch.Dispatch -> engines.engine() -> launchers/… or attach() -> engine.Engine
                                                                   └-> ngbkit.device.plan, over there
"""
