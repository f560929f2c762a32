"""`--health HOST:PORT`: a tiny HTTP listener for probes. `/livez`: it runs; `/readyz`: its store answers, it claims."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import msgspec

from paceline.errors import ConfigError

PATIENCE = 5.0
"""Seconds that a client may take to say what it wants."""
State = Callable[[], Awaitable[tuple[bool, dict[str, object]]]]


def check_address(text: str) -> tuple[str, int]:
    """`127.0.0.1:8081` or just `8081`."""
    host, _, port = text.rpartition(":")
    if not port.isdigit() or not 0 <= int(port) <= 65535:
        raise ConfigError(f"health={text!r} is wrong: expected host:port such as 127.0.0.1:8081", option="health")
    return host or "127.0.0.1", int(port)


async def serve_health(address: str, live: State, ready: State) -> asyncio.Server:
    """Answer probes until the server is closed."""
    host, port = check_address(address)

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(PATIENCE):
                request = await reader.readline()
                while (await reader.readline()).strip():
                    pass
                writer.write(await _response(request, live, ready))
                await writer.drain()
        except (TimeoutError, OSError, ValueError):
            pass
        finally:
            writer.close()

    try:
        return await asyncio.start_server(answer, host, port)
    except OSError as error:
        raise ConfigError(f"health={address!r} cannot be used: {error.strerror or error}", option="health") from error


async def _response(request: bytes, live: State, ready: State) -> bytes:
    path = request.split(b" ")[1] if request.count(b" ") == 2 else b""
    states = {b"/livez": live, b"/readyz": ready, b"/health": ready}
    if path not in states:
        return _http(404, {"paths": ["/livez", "/readyz"]})
    good, facts = await states[path]()
    return _http(200 if good else 503, {"ok": good, **facts})


def _http(status: int, body: dict[str, object]) -> bytes:
    content = msgspec.json.encode(body)
    words = {200: "OK", 404: "Not Found", 503: "Service Unavailable"}
    head = (
        f"HTTP/1.1 {status} {words[status]}\r\ncontent-type: application/json\r\n"
        f"content-length: {len(content)}\r\nconnection: close\r\n\r\n"
    )
    return head.encode() + content
