"""The nodes at fault in an incident, as the database has them: a JSON list of names."""

from __future__ import annotations

import msgspec
from sqlalchemy import ColumnElement

from bot.store.confirmed_fault import actual_nodes


def node_names(nodes: str | None) -> tuple[str, ...]:
    """Return the names of a row; none for a row that has none, or holds something else."""
    try:
        return () if nodes is None else tuple(msgspec.json.decode(nodes, type=list[str]))
    except msgspec.DecodeError:
        return ()


def suspects(node: str) -> ColumnElement[bool]:
    """Condition for incidents in which the node with exactly this name is at fault, as people closed them, else as diagnosed."""
    return actual_nodes().contains(msgspec.json.encode(node).decode(), autoescape=True)
