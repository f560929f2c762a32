"""Arrays as we write them are what psycopg writes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from psycopg.raw_cursor import RawCursor

from paceline.stores.postgres.arrays import BIGINT, BOOLEAN, BYTEA, INT, TEXT, Kind, array

TEXTS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=20)


@pytest.mark.parametrize(
    ("kind", "name", "items"),
    [
        (TEXT, "text", TEXTS),
        (BYTEA, "bytea", st.binary(max_size=20)),
        (BIGINT, "bigint", st.integers(-(2**63), 2**63 - 1)),
        (INT, "int", st.integers(-(2**31), 2**31 - 1)),
        (BOOLEAN, "boolean", st.booleans()),
    ],
)
def test_an_array_arrives_as_it_is(sql, kind: Kind, name: str, items: Any):
    @settings(max_examples=60, deadline=None)
    @given(st.lists(st.none() | items, max_size=30) | st.lists(items, max_size=30))
    def arrives(values: list[Any]) -> None:
        packed = array(kind, values)
        with RawCursor(sql) as cursor:
            found = cursor.execute(f"select $1::{name}[]", (packed,), binary=True).fetchone()
        assert found == ((values or []) if packed is not None else None,)
        assert (packed is None) == (bool(values) and all(value is None for value in values))

    arrives()
