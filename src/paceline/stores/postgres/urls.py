"""What libpq takes in a URL, checked before anything connects."""

from __future__ import annotations

import psycopg
from psycopg.conninfo import conninfo_to_dict

from paceline.stores.address import without_password, wrong


def url_options() -> frozenset[str]:
    """The options of a URL that are libpq's."""
    return frozenset({"ssl", *(each.keyword.decode() for each in psycopg.pq.Conninfo.get_defaults())})


def check_url(url: str) -> str:
    """The URL, if libpq can read it."""
    try:
        found = conninfo_to_dict(url)
    except psycopg.ProgrammingError as error:
        # libpq repeats the whole URL, with its password.
        raise wrong(url, str(error).replace(url, without_password(url)).strip()) from None
    for port in str(found.get("port", "")).split(","):
        if port and not (port.isdecimal() and 0 < int(port) < 65536):
            raise wrong(url, f"port={port!r} is no number from 1 to 65535")
    return url
