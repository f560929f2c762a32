"""`paceline limits`: list limits, change them, hold them, each with a reason."""

from __future__ import annotations

import shlex

import click

from paceline.cli.kinds import KindType, merge
from paceline.cli.output import clean, in_words, json_option, print_json, short
from paceline.cli.overview import LimitLine, limit_lines
from paceline.cli.running import with_store
from paceline.cli.status import limit_data, limit_table
from paceline.cli.target import Target
from paceline.limits import Kind
from paceline.limits.explain import Usage
from paceline.stores.interface import Override

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
    notes = [_override_note(line, word) for line in lines for word in (line.override, *line.of_groups) if word]
    notes += [_hold_note(line.usage) for line in lines if line.usage.hold_until > line.usage.now]
    if notes:
        click.echo()
    for note in notes:
        click.echo(clean(note))


def _override_note(line: LimitLine, word: Override) -> str:
    ends = "" if word.expires_at is None else f", for another {short(word.expires_at - line.usage.now)}"
    why = f": {word.reason}" if word.reason else ""
    name = whose(word.limit, word.group)
    return f"{name}: set to {in_words(word.kind)}; declared: {in_words(line.limit.kind)}{ends}{why}"


def _hold_note(usage: Usage) -> str:
    why = f": {usage.hold_reason}" if usage.hold_reason else ""
    return f"{whose(usage.limit, usage.group)}: nobody starts for another {short(usage.hold_until - usage.now)}{why}"


def whose(name: str, group: str | None) -> str:
    """Which key of a limit is meant."""
    return clean(name if group is None else f"{name} of group {group!r}")


@limits.command("set")
@click.argument("name")
@click.argument("kind", type=KindType())
@group_option
@click.option("--for", "expires", metavar="DURATION", help="Only for so long, such as 2h; else until `reset`.")
@click.option("--exactly", is_flag=True, help="Drop the parts of the limit that KIND does not speak of.")
@reason_option
@with_store
async def set_limit(
    target: Target,
    name: str,
    kind: Kind,
    group: str | None,
    expires: str | None,
    exactly: bool,
    reason: str | None,
) -> None:
    """Give limit NAME other numbers, for every worker at once.

    KIND is 100/min, or as it is shown: "60 per 1m, 5 at once", or what code says: "Rate(9, per='1s') & Concurrency(2)".
    What it does not speak of stays: 100/min leaves "5 at once" as it is.
    """
    kept: list[Kind] = []
    if not exactly:
        kind, kept = merge((await target.store.usage(name, group)).kind, kind)
    await target.desk.override(name, kind, group=group, reason=reason, expires=expires)
    back = shlex.join(["paceline", "limits", "reset", name, *([] if group is None else ["--group", group])])
    click.echo(f"{whose(name, group)}: {in_words(kind)}{f' for {expires}' if expires else f', until `{back}`'}")
    if kept:
        click.echo(f"kept: {', '.join(in_words(part) for part in kept)} (--exactly would drop it)")


@limits.command("reset")
@click.argument("name")
@group_option
@with_store
async def reset_limit(target: Target, name: str, group: str | None) -> None:
    """Give limit NAME the numbers again that the code declares."""
    await target.desk.override(name, None, group=group)
    usage = await target.store.usage(name, group)
    click.echo(f"{whose(name, group)}: {in_words(usage.kind)}, as declared")


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
    ends = f"nobody starts for {short(usage.hold_until - usage.now)}" if usage.hold_until else "held"
    click.echo(f"{whose(name, group)}: {ends}")


@limits.command("release")
@click.argument("name")
@group_option
@with_store
async def release_limit(target: Target, name: str, group: str | None) -> None:
    """Lift the hold of limit NAME."""
    await target.desk.release(name, group=group)
    click.echo(f"{whose(name, group)}: released")


@limits.command("clear")
@click.argument("name")
@group_option
@with_store
async def clear_limit(target: Target, name: str, group: str | None) -> None:
    """Forget the starts and the hold of limit NAME; what runs still counts."""
    await target.store.clear(name, group)
    click.echo(f"{whose(name, group)}: begins anew")


@limits.command("drop")
@click.argument("name")
@with_store
async def drop_limit(target: Target, name: str) -> None:
    """Forget limit NAME; code that declares it brings it back."""
    await target.store.usage(name, None)  # says which limits there are if this is none of them
    await target.desk.drop_limit(name)
    click.echo(f"{name}: forgotten")
