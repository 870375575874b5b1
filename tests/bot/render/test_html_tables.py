"""Stacked tables: each cell says of which column it is, and keeps its role."""

from __future__ import annotations

from markupsafe import Markup

from bot.render.html_tables import stacked

TABLE = Markup(
    '<table class="x"><thead><tr><th scope="col">Class</th><th scope="col">GPU-hours <b>lost</b> &amp; "more"</th></tr></thead>'
    '<tbody><tr><th scope="row">&lt;td&gt;</th><td class="n">3</td><td>beyond</td></tr></tbody></table>'
)


def test_cells_have_the_heads_of_their_columns():
    """Without markup and escaped; the head of a row needs none, nor does a cell beyond the heads."""
    assert stacked(TABLE) == (
        '<table role="table" class="x"><thead role="rowgroup"><tr role="row"><th role="columnheader" scope="col">Class</th>'
        '<th role="columnheader" scope="col">GPU-hours <b>lost</b> &amp; "more"</th></tr></thead><tbody role="rowgroup">'
        '<tr role="row"><th role="rowheader" scope="row">&lt;td&gt;</th>'
        '<td role="cell" data-label="GPU-hours lost &amp; &#34;more&#34;" class="n">3</td><td role="cell">beyond</td></tr>'
        "</tbody></table>"
    )


def test_a_table_without_a_body_stays():
    """There is nothing to stack."""
    assert stacked(Markup("<table><tr><td>1</td></tr></table>")) == "<table><tr><td>1</td></tr></table>"
