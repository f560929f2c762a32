"""URLs of all four kinds of stores: what is wrong with one is said when it is given, and never with its password."""

from __future__ import annotations

import pytest

from paceline import App, PayloadTooLarge, Queue
from paceline.errors import ConfigError
from paceline.stores import open_store
from paceline.stores.address import without_password

URLS = {
    "memory": "memory://",
    "sqlite": "sqlite:///jobs.db",
    "postgres": "postgresql://user:secret@host/database",
    "redis": "redis://user:secret@host:6379/0",
    "rediss": "rediss://user:secret@host:6379/0",
    "unix": "unix:///run/redis.sock",
}
kinds = pytest.mark.parametrize("url", URLS.values(), ids=URLS)


def refused(url: str) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        open_store(url)
    assert "secret" not in str(caught.value)
    return caught.value


@kinds
def test_an_unknown_option_is_named_with_those_there_are(url: str) -> None:
    error = refused(f"{url}?nonsense=1")
    assert error.option == "nonsense"
    assert "unknown option 'nonsense'; " in str(error) and "max_payload" in str(error)


@kinds
def test_a_misspelt_option_is_recognised(url: str) -> None:
    assert "did you mean 'max_payload'?" in str(refused(f"{url}?max_paylod=5"))


@pytest.mark.parametrize(
    ("url", "meant"),
    [
        ("redis://h/0?durabilty=fsync", "durability"),
        ("redis://h/0?socket_timout=3", "socket_timeout"),
        ("rediss://h/0?ssl_ca_cert=x", "ssl_ca_certs"),
        ("postgresql://h/d?sslmod=require", "sslmode"),
        ("postgresql://h/d?shema=jobs", "schema"),
        ("sqlite:///jobs.db?durabillity=full", "durability"),
    ],
)
def test_options_of_drivers_are_recognised_too(url: str, meant: str) -> None:
    assert f"did you mean {meant!r}?" in str(refused(url))


@kinds
@pytest.mark.parametrize("value", ["", "0", "-1", "1.5", "many", "1e6"])
def test_a_wrong_max_payload_is_named_with_its_value(url: str, value: str) -> None:
    error = refused(f"{url}?max_payload={value}")
    assert error.option == "max_payload"
    assert "expected a whole number of at least 1" in str(error)


@kinds
def test_a_wrong_max_payload_is_refused_as_an_argument_too(url: str) -> None:
    with pytest.raises(ConfigError, match="max_payload=0 is wrong"):
        open_store(url, max_payload=0)


@kinds
def test_max_payload_can_stand_in_the_url(url: str) -> None:
    assert open_store(f"{url}?max_payload=5000").max_payload == 5000


async def test_an_app_and_a_queue_have_the_max_payload_of_their_url() -> None:
    for owner in (App("memory://small?max_payload=20").queue("q"), Queue("q", store="memory://small?max_payload=20")):
        with pytest.raises(PayloadTooLarge, match=r"\?max_payload=\d+ in the URL .* or open_store\(url, max_payload="):
            await owner.add("task", "x" * 100)


@pytest.mark.parametrize(
    "url",
    [
        "redis://[bad",
        "redis://user:secret@[bad/0",
        "rediss://user:secret@[bad/0",
        "postgresql://[bad/d",
        "postgresql://user:secret@[bad/d",
        "memory://[bad",
        "sqlite://[bad/jobs.db",
        "redis://user:secret@host:port/0",
        "redis://host/jobs",
        "redis://host/0?db=jobs",
        "redis://user:secret?x@host/0",
        "postgresql://user:secret@host:port/d",
        "postgresql://user:secret@host:99999/d",
        "redis://host/0?password=secret&nonsense=1",
        "mysql://user:secret@host/0",
        "user:secret@host",
    ],
)
def test_what_is_no_proper_url_is_a_config_error(url: str) -> None:
    assert refused(url).option


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("redis://h/0?trust_restart=perhaps", "true or false"),
        ("redis://h/0?durability=perhaps", '"server" or "fsync"'),
        ("redis://h/0?timeout=soon", "duration"),
        ("redis://h/0?connect_timeout=never", "duration"),
        ("postgresql://h/d?pooler=perhaps", "true or false"),
        ("sqlite:///jobs.db?durability=perhaps", '"full" or "normal"'),
    ],
)
def test_a_wrong_value_is_named_with_what_is_expected(url: str, expected: str) -> None:
    error = refused(url)
    name, _, value = url.partition("?")[2].partition("=")
    assert error.option == name
    assert f"{name}='{value}' is wrong" in str(error) and expected in str(error)


def test_options_of_drivers_are_left_to_them() -> None:
    open_store("redis://h/0?socket_connect_timeout=3&client_name=me&timeout=2s&connect_timeout=1.5")
    open_store("rediss://h/0?ssl_cert_reqs=none&ssl_ca_certs=/x")
    open_store("unix:///run/redis.sock?db=3")
    open_store(
        "postgresql://u@h1:5432,h2:5433/d?target_session_attrs=read-write&sslmode=require&schema=jobs&pooler=true"
    )


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://user:secret@host/0", "redis://user:***@host/0"),
        ("redis://:secret@host/0", "redis://:***@host/0"),
        ("redis://user:sec@ret@host/0", "redis://user:***@host/0"),
        ("redis://user:sec/ret@host/0", "redis://user:***@host/0"),
        ("redis://user:sec?ret@host/0", "redis://user:***@host/0"),
        ("redis://user:secret@[bad/0", "redis://user:***@[bad/0"),
        ("redis://host:6379/0?client_name=a@b", "redis://host:6379/0?client_name=a@b"),
        ("redis://user:secret@host/0?client_name=a@b", "redis://user:***@host/0?client_name=a@b"),
        ("redis://host/0?a=1&password=secret&b=2", "redis://host/0?a=1&password=***&b=2"),
        ("rediss://host/0?ssl_password=secret", "rediss://host/0?ssl_password=***"),
        ("redis://host/0", "redis://host/0"),
        ("user:secret@host", "user:***@host"),
        ("sqlite:///a:b@c.db", "sqlite:///a:b@c.db"),
    ],
)
def test_a_password_is_never_shown(url: str, shown: str) -> None:
    assert without_password(url) == shown
