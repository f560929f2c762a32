"""`paceline limits`: list limits, change them, hold them, each with a reason."""

from __future__ import annotations

import click

from paceline.cli.kinds import KindType
from paceline.cli.output import in_words, json_option, print_json, short
from paceline.cli.overview import limit_lines
from paceline.cli.running import with_store
from paceline.cli.status import limit_data, limit_table
from paceline.cli.target import Target
from paceline.limits import Kind

group_option = click.option("-g", "--group", help="Only this group's key of a per-group limit.")
reason_option = click.option("-r", "--reason", help="Why; others see it.")


class ListUnlessNamed(click.Group):
    """Without a subcommand it lists."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        named = bool(args) and (args[0] in self.commands or args[0] in ctx.help_option_names)
        return super().parse_args(ctx, args if named else ["list", *args])


@click.group(cls=ListUnlessNamed)
def limits() -> None:
    """List limits, change them, hold them."""


@limits.command("list")
@group_option
@json_option
@with_store
async def list_limits(target: Target, group: str | None, as_json: bool) -> None:
    """All limits: what they allow, how full they are, who waits."""
    lines = await limit_lines(target.store, group)
    if as_json:
        print_json([limit_data(line) for line in lines])
        return
    click.echo("\n".join(limit_table(lines)) if lines else "no limits are declared")
    words = [line for line in lines if line.override is not None]
    holds = [line.usage for line in lines if line.usage.hold_until > line.usage.now]
    if words or holds:
        click.echo()
    for line in words:
        word, now = line.override, line.usage.now
        assert word is not None
        ends = "" if word.expires_at is None else f", for another {short(word.expires_at - now)}"
        why = f": {word.reason}" if word.reason else ""
        click.echo(f"{line.limit.name}: set to {in_words(word.kind)}; declared: {in_words(line.limit.kind)}{ends}{why}")
    for usage in holds:
        why = f": {usage.hold_reason}" if usage.hold_reason else ""
        click.echo(f"{usage.limit}: nobody starts for another {short(usage.hold_until - usage.now)}{why}")


@limits.command("set")
@click.argument("name")
@click.argument("kind", type=KindType())
@group_option
@click.option("--for", "expires", metavar="DURATION", help="Only for so long, such as 2h; else until `reset`.")
@reason_option
@with_store
async def set_limit(
    target: Target, name: str, kind: Kind, group: str | None, expires: str | None, reason: str | None
) -> None:
    """Give limit NAME other numbers, for every worker at once.

    KIND is 100/min, or what code says: "Rate(9, per='1s') & Concurrency(2)".
    """
    await target.desk.override(name, kind, group=group, reason=reason, expires=expires)
    click.echo(f"{name}: {in_words(kind)}{f' for {expires}' if expires else ', until `paceline limits reset`'}")


@limits.command("reset")
@click.argument("name")
@group_option
@with_store
async def reset_limit(target: Target, name: str, group: str | None) -> None:
    """Give limit NAME the numbers again that the code declares."""
    await target.desk.override(name, None, group=group)
    usage = await target.store.usage(name, group)
    click.echo(f"{name}: {in_words(usage.kind)}, as declared")


@limits.command("hold")
@click.argument("name")
@click.option("--for", "for_", metavar="DURATION", required=True, help="How long, such as 10m.")
@group_option
@reason_option
@with_store
async def hold_limit(target: Target, name: str, for_: str, group: str | None, reason: str | None) -> None:
    """Let nobody start under limit NAME for a while. A hold only grows until it is released."""
    await target.desk.hold(name, for_=for_, group=group, reason=reason)
    usage = await target.store.usage(name, group)
    click.echo(
        f"{name}: nobody starts for {short(usage.hold_until - usage.now)}" if usage.hold_until else f"{name}: held"
    )


@limits.command("release")
@click.argument("name")
@group_option
@with_store
async def release_limit(target: Target, name: str, group: str | None) -> None:
    """Lift the hold of limit NAME."""
    await target.desk.release(name, group=group)
    click.echo(f"{name}: released")


@limits.command("clear")
@click.argument("name")
@group_option
@with_store
async def clear_limit(target: Target, name: str, group: str | None) -> None:
    """Forget the starts and the hold of limit NAME; what runs still counts."""
    await target.store.clear(name, group)
    click.echo(f"{name}: begins anew")


@limits.command("drop")
@click.argument("name")
@with_store
async def drop_limit(target: Target, name: str) -> None:
    """Forget limit NAME; code that declares it brings it back."""
    dropped = await target.desk.drop_limit(name)
    click.echo(f"{name}: forgotten" if dropped else f"there is no limit {name!r}")
