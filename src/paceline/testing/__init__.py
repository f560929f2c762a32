"""For tests, yours and ours: virtual time, in which an hour of limits takes milliseconds."""

from paceline.testing.virtual import VirtualClock, VirtualTime, virtual_time

__all__ = ["VirtualClock", "VirtualTime", "virtual_time"]
