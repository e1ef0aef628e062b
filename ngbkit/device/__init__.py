"""The part that runs on a device, in its engine and in the engine's children; it imports nothing that a Jetson lacks.

plan.run -> groups.Bench -> worker.Worker -> servers.ForkServer ==fork==> child.serve -> preparation, compilers, timing
                |
                └-> journal (durable) -> events (visible)
"""
