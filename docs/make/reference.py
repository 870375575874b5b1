"""Writes the reference pages of the documentation from what they describe: the command line, signalbox.yaml and reports.

They are not kept in the checkout: docs/make/website.py makes them at each build, so they cannot be out of date.
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import typer
from typer.main import get_command

from bot.cli.command_line import command_line
from bot.render.markdown import cell, prose, table

DOCS = Path(__file__).resolve().parent.parent


def pages() -> dict[str, str]:
    """All reference pages: path below docs/ → Markdown."""
    report = json.loads((DOCS / "report.schema.json").read_text("utf-8"))
    config = json.loads((DOCS / "config.schema.json").read_text("utf-8"))
    return {
        "reference/cli.md": command_page(),
        "reference/configuration.md": schema_page(
            "Settings of signalbox.yaml",
            "[Configuration](../configuration.md) explains how to use them, [connectors](../connectors.md) each connector. "
            "[The example](../examples/signalbox.yaml) has all connectors with all their settings, and "
            "[config.schema.json](../config.schema.json) is the JSON Schema for editors.",
            config,
        ),
        "reference/report.md": schema_page(
            "Fields of a report",
            "`signalbox diagnose --json` prints this format. [report.schema.json](../report.schema.json) is its JSON Schema.",
            report,
        ),
    }


# -- the command line ------------------------------------------------------------------------------------------------------


def command_page() -> str:
    """All commands with their arguments and options, in the order of the help."""
    parts = ["# Commands", "`-h` shows the same help in a terminal."]
    for path, command in commands():
        context = _context(command, path)
        usage = " ".join(["signalbox", *path, *command.collect_usage_pieces(context)])
        parts += [f"{'##' if len(path) == 1 else '###'} {' '.join(path)}", f"    {usage}"]
        parts += [prose(re.sub(r"\s+", " ", part)) for part in (command.help or "").split("\n\n")]
        rows = [_option(record) for item in command.params if (record := item.get_help_record(context))]
        parts += ["\n".join(table(["Argument or option", "Meaning"], rows))] if rows else []
    return "\n\n".join(parts) + "\n"


def commands() -> Iterator[tuple[tuple[str, ...], Any]]:
    """Each command and group with its path, such as `("rules", "show")`."""
    root: Any = get_command(command_line())
    for name, command in root.commands.items():
        yield (name,), command
        for inner, below in getattr(command, "commands", {}).items():
            yield (name, inner), below


def _context(command: Any, path: tuple[str, ...]) -> typer.Context:
    return command.context_class(command, info_name=path[-1], help_option_names=["-h", "--help"])


def _option(record: tuple[str, str]) -> list[str]:
    names, meaning = record
    return [_code(names), cell(meaning)]


def _code(text: str) -> str:
    """Code in a cell of a table: Markdown has no portable form for one with `|`."""
    return f"<code>{html.escape(text).replace('|', '&#124;')}</code>"


# -- a JSON Schema ---------------------------------------------------------------------------------------------------------


def schema_page(title: str, intro: str, schema: Mapping[str, Any]) -> str:
    """A page with a table of keys for the whole and for each definition of a schema."""
    parts = [f"# {title}", intro, *_section("Top level", schema)]
    for name, body in sorted(schema["$defs"].items(), key=lambda item: str(item[0]).lower()):
        parts += _section(name, body)
    return "\n\n".join(parts) + "\n"


def _section(name: str, body: Mapping[str, Any]) -> list[str]:
    must = set(body.get("required", ()))
    rows = [
        [_code(key), _value(item, required=key in must), cell(_about(item))]
        for key, item in body.get("properties", {}).items()
    ]
    about = re.sub(r"\s+", " ", str(body.get("description", "")).split("\n\n", maxsplit=1)[0])
    found = [f"## {name} {{#{_anchor(name)}}}", *([prose(about)] if about and name != "Top level" else [])]
    return [*found, "\n".join(table(["Key", "Value", "Meaning"], rows))] if rows else found


def _value(item: Mapping[str, Any], *, required: bool) -> str:
    """The type of a value and its default in one cell: four columns are too many for a phone."""
    default = _default(item)
    more = "required" if required else f"default {default}" if default else ""
    return f"{_type(item)}<br>{more}" if more else _type(item)


def _type(item: Mapping[str, Any]) -> str:
    """The type of a value, with a link where it is an object of its own."""
    if "$ref" in item:
        name = str(item["$ref"]).rsplit("/", 1)[-1]
        return f"[{name}](#{_anchor(name)})"
    if options := item.get("anyOf") or item.get("oneOf"):
        return " or ".join(dict.fromkeys(_type(option) for option in options))
    if "enum" in item or "const" in item:
        return ", ".join(_code(str(value)) for value in item.get("enum") or [item["const"]])
    kind = item.get("type", "any")
    if isinstance(kind, list):
        return " or ".join(kind)
    if kind == "array":
        return f"list of {_type(item['items'])}" if item.get("items") else "list"
    extra = item.get("additionalProperties")
    return f"map of {_type(extra)}" if kind == "object" and isinstance(extra, dict) and extra else str(kind)


def _default(item: Mapping[str, Any]) -> str:
    value = item.get("default")
    return "" if value is None or value in ({}, []) or isinstance(value, dict) else _code(json.dumps(value))


def _about(item: Mapping[str, Any]) -> str:
    return re.sub(r"\s+", " ", str(item.get("description", "")).split("\n\n", maxsplit=1)[0])


def _anchor(name: str) -> str:
    return f"def-{name.lower().replace(' ', '-')}"
