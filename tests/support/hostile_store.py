"""A store whose every name is hostile."""

from __future__ import annotations

import json
from dataclasses import replace
from random import Random

from bot.demo.sample_incidents import incidents
from bot.incidents.ledger import Ledger
from bot.store.packed_reports import file
from bot.store.report_writes import add_within
from tests.support.filled_store import BOOK, NOW
from tests.support.hostile_reports import text

SCRIPTS = (
    "<script>document.title='owned'</script>",
    '"><img src=x onerror="document.title=\'owned\'">',
    "</title></style><svg onload=document.title='owned'>",
    "{{ 7*7 }}{% raw %}",
    "javascript:document.title='owned'",
    "' onmouseover='document.title=1",
)


def fill(ledger: Ledger, seed: int) -> None:
    """Ten weeks with names that chance makes."""
    chance = Random(seed)

    def name() -> str:
        made = chance.choice(SCRIPTS) + text(chance) if chance.random() < 0.7 else text(chance)
        return made.encode("utf-8", "replace").decode().replace("\0", "?")

    names = [name() for _ in range(40)]
    with ledger.database.session(write=True) as session:
        for incident in incidents(BOOK, NOW, days=70, seed=seed, pace=0.8):
            filed = file(b"{}", incident.report, b"", None, incident.at, origin=incident.origin)
            hostile = {key: chance.choice(names) for key in
                       ("job_name", "owner", "image", "partition", "framework", "cluster", "rule", "summary")}  # fmt: skip
            row = {**filed.row, **hostile, "nodes": json.dumps([chance.choice(names), chance.choice(names)])}
            if chance.random() < 0.2:
                row["fault"] = chance.choice(names)
            add_within(session, replace(filed, row=row))
