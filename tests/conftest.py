"""Settings that all tests share."""

from __future__ import annotations

from hypothesis import settings

# Machines are shared: how long one example takes says nothing.
settings.register_profile("steady", deadline=None, print_blob=True)
settings.load_profile("steady")
