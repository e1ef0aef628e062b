"""Devices in number: ngbkit is installed on them and removed, and jobs of Slurm start their engines."""
