"""RFC 9651, as far as the RateLimit fields need it."""

from __future__ import annotations

import pytest

from paceline.feedback.structured_fields import Item, parse_dictionary, parse_list


def test_the_partition_key_is_decoded_and_an_absent_time_is_absent() -> None:
    items = parse_list('"default";r=999;pk=:dHJpYWwxMjEzMjM=:')

    assert items == [Item(value="default", parameters={"r": 999, "pk": b"trial121323"})]


def test_a_list_may_have_spaces_after_commas_and_semicolons() -> None:
    items = parse_list('"burst"; q=100;w=60 ,\t"daily";q=1000')

    assert items == [
        Item(value="burst", parameters={"q": 100, "w": 60}),
        Item(value="daily", parameters={"q": 1000}),
    ]


def test_commas_semicolons_and_escaped_quotes_belong_to_the_string() -> None:
    assert parse_list(r'"a,b;c=\"d\\e";r=1') == [Item(value=r'a,b;c="d\e', parameters={"r": 1})]


def test_every_kind_of_value_is_read() -> None:
    items = parse_list('tok/en, -5, 1.25, ?1, :YQ:, @1659578233, %"f%c3%bc", "";flag')

    assert items is not None
    assert [item.value for item in items] == ["tok/en", -5, 1.25, True, b"a", 1659578233, "f%c3%bc", ""]
    assert items[-1].parameters == {"flag": True}


def test_the_last_of_a_repeated_key_or_parameter_counts() -> None:
    assert parse_list("a;r=1;r=2") == [Item(value="a", parameters={"r": 2})]
    assert parse_dictionary("a=1, a=2;w=1") == {"a": Item(value=2, parameters={"w": 1})}


def test_a_dictionary_key_without_a_value_is_true() -> None:
    assert parse_dictionary("a;w=1, b=2") == {
        "a": Item(value=True, parameters={"w": 1}),
        "b": Item(value=2, parameters={}),
    }


def test_an_empty_field_has_no_members() -> None:
    assert parse_list("  ") == []
    assert parse_dictionary("") == {}


@pytest.mark.parametrize(
    "text",
    [
        '"a',
        '"a",',
        '"a" "b"',
        '"a";',
        '"a";R=1',
        '"a";r=',
        ",",
        "1234567890123456",
        "1.2345",
        ":YQ=Q:",
        ":Y:",
        "?2",
        '"é"',
        "a=1",
    ],
)
def test_one_fault_makes_the_whole_list_malformed(text: str) -> None:
    assert parse_list(text) is None
    assert parse_list(f'"good";r=1, {text}') is None


@pytest.mark.parametrize("text", ["a=", "a=1,", "A=1", "a=1 b=2", "=1"])
def test_one_fault_makes_the_whole_dictionary_malformed(text: str) -> None:
    assert parse_dictionary(text) is None
