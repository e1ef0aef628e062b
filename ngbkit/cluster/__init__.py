"""The client's way to its devices: engines started or attached, plans sent, events passed on.

runs.Run -> dispatch.Dispatch -> local.engine() or attach() -> engine.Engine
                                                                   └-> ngbkit.device.plan, over there
"""

from ngbkit.cluster.attach import attach

__all__ = ["attach"]
