"""Tables of pages that a narrow screen shows as stacked rows: each cell with its column's head before it.

Style sheets do the stacking. It takes away a table's meaning for screen readers, so the roles are written out.
"""

from __future__ import annotations

import re
from itertools import chain, count, repeat

from markupsafe import Markup, escape

_CELL = re.compile(r"<(?P<tag>t[hd])(?P<rest>(?: [^>]*)?)>")
_HEAD = re.compile(r"<th[^>]*>(.*?)</th>", re.DOTALL)
_ROW = re.compile(r"<tr([^>]*)>")
_ROW_HEAD = 'scope="row"'


def stacked(table: Markup) -> Markup:
    """Return a table of our own templates, in which text is escaped, with its columns' heads as `data-label` of the cells."""
    text = str(table)
    head, found, body = text.partition("<tbody>")
    if not found:
        return table
    labels = [Markup(cell).striptags() for cell in _HEAD.findall(head)]  # noqa: S704 - likewise
    rows = [_labelled(row, labels) if at else row for at, row in enumerate(re.split(r"(?=<tr)", body))]
    head = _CELL.sub(r'<\g<tag> role="columnheader"\g<rest>>', head)
    whole = _ROW.sub(r'<tr role="row"\1>', f'{head}<tbody role="rowgroup">{"".join(rows)}')
    whole = whole.replace("<thead>", '<thead role="rowgroup">', 1)
    return Markup(whole.replace("<table", '<table role="table"', 1))  # noqa: S704 - made of the template's own markup


def _labelled(row: str, labels: list[str]) -> str:
    names = chain(labels, repeat(""))
    places = count()

    def cell(found: re.Match[str]) -> str:
        name, first = next(names), next(places) == 0
        role = "rowheader" if _ROW_HEAD in found["rest"] else "cell"
        label = "" if not name or (first and role == "rowheader") else f' data-label="{escape(name)}"'
        return f'<{found["tag"]} role="{role}"{label}{found["rest"]}>'

    return _CELL.sub(cell, row)
