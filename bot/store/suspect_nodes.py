"""The nodes that an incident suspects, as its row has them: a JSON list of names."""

from __future__ import annotations

import msgspec
from sqlalchemy import ColumnElement
from sqlmodel import col

from bot.store.tables import IncidentRow


def node_names(nodes: str | None) -> tuple[str, ...]:
    """Return the names of a row; none for a row that has none, or holds something else."""
    try:
        return () if nodes is None else tuple(msgspec.json.decode(nodes, type=list[str]))
    except msgspec.DecodeError:
        return ()


def suspects(node: str) -> ColumnElement[bool]:
    """Condition for rows that suspect the node with exactly this name."""
    return col(IncidentRow.nodes).contains(msgspec.json.encode(node).decode(), autoescape=True)
