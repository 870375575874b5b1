"""The list of commands in a help text: each with its whole first sentence, wrapped where it is long."""

from __future__ import annotations

from typing import Any

from typer.core import TyperGroup

_WHOLE = 500  # characters; by default, a sentence is cut where it would fill its line


class CommandGroup(TyperGroup):
    """A group of commands whose help is not cut."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the name of each command that is not hidden, and what it does."""
        found = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        rows = [(name, one.get_short_help_str(_WHOLE)) for name, one in found if one is not None and not one.hidden]
        if rows:
            with formatter.section("Commands"):
                formatter.write_dl(rows)
