"""What outside services say about their limits, read from a response's status and headers; pure."""

from .response import parse
from .signal import Dimension, Signal

__all__ = ["Dimension", "Signal", "parse"]
