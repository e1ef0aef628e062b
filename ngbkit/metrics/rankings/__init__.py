"""The fastest compilers of a group, the fastest networks, and the places where their order turns."""
