"""All that `signalbox serve` remembers, through one pool of connections."""

from __future__ import annotations

from datetime import datetime

from sqlmodel import Session, col, select

from bot.bars import Bars
from bot.closing import Closings
from bot.life import Lives
from bot.postings import NOBODY, Postings
from bot.quieting import Quieting
from bot.store import Store
from bot.tables import RequestRow
from bot.worklist import OPEN, Wanted, Work, Worklist, ask_within


class Ledger(Store, Worklist, Postings, Closings, Lives, Quieting, Bars):
    """Incidents, work, messages, close-outs, mutes and bars, in one database."""

    def ask(self, wanted: Wanted, now: datetime, fold: float = 0.0) -> tuple[Work, bool]:
        """An alert or a scheduler asks for work: whoever should hear of the answer is told; see `Worklist.ask`."""

        def asked(session: Session) -> tuple[Work, bool]:
            work, new = ask_within(session, wanted, now, fold)
            key = f"unasked:{work.id}"
            there = session.exec(select(RequestRow.id).where(col(RequestRow.key) == key)).first()
            if work.state in OPEN and there is None:
                # a request of nobody in particular, one for each piece of work: its row is locked by `ask_within`
                session.add(
                    RequestRow(key=key, tenant=wanted.tenant, work_id=work.id, channel="", who=NOBODY, created_at=now)
                )
            return work, new

        return self.write(asked)
