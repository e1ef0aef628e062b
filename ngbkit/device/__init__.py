"""What runs on a device, in its engine and in the engine's children; imports nothing that a Jetson would not have.

plan.run -> groups.Bench -> lane.Lane -> servers.ForkServer ==fork==> child.serve -> preparation, compilers, timing
                |
                └-> journal (durable) -> events (visible)
"""
