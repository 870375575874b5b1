"""Groups of commands: each with its whole first sentence in the help, and a hint where an option stands before its command."""

from __future__ import annotations

from typing import Any

from typer.core import TyperGroup

_WHOLE = 500  # characters; by default, a sentence is cut where it would fill its line


class CommandGroup(TyperGroup):
    """A group of commands whose help is not cut."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the group's own options. An option of a command that stands before it is an error which says where it goes."""
        words = list(args)
        try:
            return super().parse_args(ctx, args)
        except Exception as error:
            name = getattr(error, "option_name", "")
            path = _commands_of(self, ctx, words)
            if not name or not path or not any(name in option.opts for option in path[-1][1].params):
                raise
            whole = " ".join([ctx.command_path, *(word for word, _ in path)])
            vars(error).update(message=f"{name} goes after the command: {whole} {name} ...", possibilities=None)
            raise

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the name of each command that is not hidden, and what it does."""
        found = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        rows = [(name, one.get_short_help_str(_WHOLE)) for name, one in found if one is not None and not one.hidden]
        if rows:
            with formatter.section("Commands"):
                formatter.write_dl(rows)


def _commands_of(group: TyperGroup, ctx: Any, words: list[str]) -> list[tuple[str, Any]]:
    """Return the command that words name, with the groups before it."""
    path: list[tuple[str, Any]] = []
    within: Any = group
    for word in words:
        found = within.get_command(ctx, word) if isinstance(within, TyperGroup) else None
        if found is not None:
            path.append((word, found))
            within = found
    return path
