"""The host of this machine: probes tell how it runs the cores, and their history which way is the usual one."""

from ngbkit.hardware.host.monitor import HostMonitor
from ngbkit.hardware.host.probe_history import PROBES, State, is_usual
from ngbkit.hardware.host.probes import HostReading, Probes

__all__ = ["PROBES", "HostMonitor", "HostReading", "Probes", "State", "is_usual"]
