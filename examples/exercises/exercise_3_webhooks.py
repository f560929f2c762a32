"""Exercise 3: 100 webhooks to a service that answers 429, without and with a limit.

The service is real: HTTP on this machine, at most 50 requests in any second, counted when they arrive. It takes about
two seconds. `paceline demo` shows the same on a larger scale, with pictures.
"""

import asyncio
import threading
import time
from collections import deque
from dataclasses import dataclass
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, HTTPServer
from itertools import count

from paceline import App, Rate, RateLimited, current_job

QUOTA, WEBHOOKS = 50, 100
GUARD = "500ms"
"""A request arrives a little after its job started, and not always by the same time: the window is this much longer."""

names = count(1)


class Service(HTTPServer):
    """Answers 429 when more than its quota arrives in any second."""

    request_queue_size = 128

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answer)
        self.accepted: deque[float] = deque()
        self.refused = 0

    def admits(self) -> bool:
        now = time.monotonic()
        while self.accepted and self.accepted[0] <= now - 1:
            self.accepted.popleft()
        if len(self.accepted) >= QUOTA:
            self.refused += 1
            return False
        self.accepted.append(now)
        return True


class Answer(BaseHTTPRequestHandler):
    server: Service

    def do_POST(self) -> None:
        self.send_response(200 if self.server.admits() else 429)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None: ...


@dataclass
class Outcome:
    delivered: int
    failed: int
    refused: int
    attempts: int
    starts: list[float]
    worst_lag: float
    """The longest time from a job's start to the moment its request had an answer."""


async def send_all(*, limited: bool) -> Outcome:
    service = Service()
    threading.Thread(target=service.serve_forever, args=(0.01,), daemon=True).start()
    app = App(f"memory://exercise-3-{next(names)}")
    if limited:
        app.limit("receiver", Rate(QUOTA, per="1s", guard=GUARD), tasks=["send_webhook"])
    lags = []

    @app.task(attempts=3)
    def send_webhook(number: int) -> None:  # a plain function: it runs in a thread
        connection = HTTPConnection("127.0.0.1", service.server_port)
        connection.request("POST", f"/hooks/{number}", body=b"{}")
        status = connection.getresponse().status
        connection.close()
        started = current_job().started_at
        lags.append(time.time() - started.timestamp() if started else 0)
        if status == 429 and limited:
            raise RateLimited.from_response(status, {})  # the limit is held; no attempt is used
        if status == 429:
            raise RuntimeError("429 Too Many Requests")  # what most code does: fail, and retry at once

    jobs = await send_webhook.enqueue_many([(number,) for number in range(WEBHOOKS)])
    await app.worker(concurrency=10).run(until_empty=True)
    service.shutdown()
    service.server_close()
    starts = sorted(start.at.timestamp() for start in await app.queue().starts())
    counts = await app.queue().counts()
    return Outcome(
        delivered=counts["completed"],
        failed=counts["failed"],
        refused=service.refused,
        attempts=sum([(await job.refresh()).attempts_made for job in jobs]),
        starts=[at - starts[0] for at in starts],
        worst_lag=max(lags),
    )


async def main() -> tuple[Outcome, Outcome]:
    return await send_all(limited=False), await send_all(limited=True)


if __name__ == "__main__":
    for title, run in zip(("without a limit", "with a limit"), asyncio.run(main()), strict=True):
        took = f"{run.starts[-1]:.1f} s"
        print(f"{title:>15}: {run.delivered} delivered, {run.failed} failed, {run.refused} × 429, {took}")
