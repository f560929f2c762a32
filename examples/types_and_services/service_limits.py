"""`SERVICE_LIMITS`: one limit for all job types that call one service."""

import asyncio

from paceline import App, Rate
from paceline.testing import virtual_time

SERVICE_LIMITS = {
    "email_provider": (["send_email", "send_digest", "send_notification"], Rate(120, per="1m")),
    "payment_gateway": (["charge_card", "refund", "retry_payment"], Rate(60, per="1m")),
}


async def main() -> dict[str, int]:
    """Starts in the first minute, of 100 jobs of each type: three types of mail send 120 together, not 360."""
    async with virtual_time() as time:
        app = App(time.store)
        for service, (types, rate) in SERVICE_LIMITS.items():
            app.limit(service, rate, tasks=types)

        async def work(number: int) -> None: ...

        for types, _ in SERVICE_LIMITS.values():
            for name in types:
                await app.task(name=name)(work).enqueue_many([(number,) for number in range(100)])

        async with app.worker():
            await time.advance("59s")
            return {
                service: sum(len(time.starts(name)) for name in types) for service, (types, _) in SERVICE_LIMITS.items()
            }


if __name__ == "__main__":
    print(asyncio.run(main()))
