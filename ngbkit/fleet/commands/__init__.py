"""The commands that install ngbkit on a device, and remove it."""
