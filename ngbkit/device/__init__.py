"""The part that runs on a device, in its engine and in the engine's children; it imports nothing that a Jetson lacks.

plan.run -> groups.bench -> groups.worker -> isolation.servers ==fork==> isolation.child -> compilers, timing
                 |
                 └-> journal (durable) -> events (visible)
"""
