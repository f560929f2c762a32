"""What the server says of itself, and which versions have faults that concern us."""

from __future__ import annotations

from paceline.stores.address import version_numbers
from paceline.stores.interface import About
from paceline.stores.redis.greeting import facts_of

SCRIPTS_FIXED = {
    "redis": {(6, 2): 20, (7, 2): 11, (7, 4): 6, (8, 0): 4, (8, 2): 2},
    "valkey": {(7, 2): 11, (8, 0): 6, (8, 1): 4},
}
"""For each line of versions, the first that is safe from CVE-2025-49844 (a script can take over the server)."""


def about(info: bytes) -> About:
    """The server's version, what it keeps, how full it is."""
    found = facts_of(info)
    name = "valkey" if found.get("server_name") == "valkey" else "redis"
    version = found.get("valkey_version" if name == "valkey" else "redis_version", "?")
    policy = found.get("maxmemory_policy", "noeviction")
    facts = {
        "mode": found.get("redis_mode", "standalone"),
        "memory": found.get("used_memory_human", "?"),
        "maxmemory": found.get("maxmemory_human", "?"),
        "appendonly": "yes" if found.get("aof_enabled") == "1" else "no",
        "maxmemory-policy": policy,
    }
    warnings = []
    if not scripts_are_safe(name, version_numbers(version)):
        warnings.append(
            f"{name.capitalize()} {version} has CVE-2025-49844 unless your distribution fixed it: "
            "whoever may run scripts can take over the server; upgrade it"
        )
    if found.get("aof_enabled") != "1":
        warnings.append("appendonly is no: a restart loses what came since the last snapshot, or everything")
    if policy != "noeviction":
        warnings.append(
            f"maxmemory-policy is {policy}: a full server throws jobs and limits away; set it to noeviction"
        )
    return About(f"{name.capitalize()} {version}", facts, tuple(warnings))


def scripts_are_safe(name: str, version: tuple[int, ...]) -> bool:
    """False when this version is known to have the fault."""
    fixed, line = SCRIPTS_FIXED[name], version[:2]
    if line > max(fixed):
        return True
    return line in fixed and version[2:3] >= (fixed[line],)
