"""What may start: the kinds of limits, the rules by name, the turns between groups. Pure: no I/O, no clock."""

from paceline.limits.backoff import Backoff
from paceline.limits.composite import AllOf, Unlimited
from paceline.limits.concurrency import Concurrency
from paceline.limits.delay import Delay
from paceline.limits.kind import Kind
from paceline.limits.rate import Rate
from paceline.limits.rule import GroupLimits, Limit
from paceline.limits.spacing import EvenlySpaced

__all__ = [
    "AllOf",
    "Backoff",
    "Concurrency",
    "Delay",
    "EvenlySpaced",
    "GroupLimits",
    "Kind",
    "Limit",
    "Rate",
    "Unlimited",
]
