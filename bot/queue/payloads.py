"""What can be written down as work: the payload of each kind, and the key under which equal requests are one."""

from __future__ import annotations

from hashlib import sha256
from typing import Literal

import msgspec

from bot.queue.tasks import TaskRequest

DIAGNOSE = "diagnose"
RECENT = "recent"
DIGEST = "digest"
GOOD_RUN = "good_run"


class DiagnosePayload(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Diagnose a job. `why`: who asked, in words, as "alerts GPUHang, XidErrors".

    `last`: only so many seconds before its end; `deep`: all lines of all logs. `ended`: when the run that is meant ended,
    seconds since the epoch; None: the last run.
    """

    job: str
    tenant: str
    cluster: str | None = None
    namespace: str | None = None
    why: str = ""
    source: Literal["webhook", "slack", "scheduler"] = "webhook"
    last: float | None = None
    deep: bool = False
    ended: float | None = None

    def key(self) -> str:
        """The same for all who ask for the same job."""
        wanted = repr((self.tenant, self.cluster, self.namespace, self.job, self.last, self.deep))
        return f"{DIAGNOSE}:{sha256(wanted.encode('utf-8', 'surrogatepass')).hexdigest()[:32]}"

    def request(self) -> TaskRequest:
        """The order as work."""
        return TaskRequest(DIAGNOSE, self.key(), self.tenant, msgspec.json.encode(self).decode())


class RecentJobsPayload(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """List the jobs of a person that failed of late. `who`: in the chat; `users`: of the schedulers, none for everybody's."""

    tenant: str
    who: str
    users: tuple[str, ...] = ()

    def request(self) -> TaskRequest:
        """The order as work."""
        return TaskRequest(
            RECENT, f"{RECENT}:{self.tenant}:{self.who}"[:200], self.tenant, msgspec.json.encode(self).decode()
        )


class KeepBaselinePayload(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Keep a run that ended well as what failed ones of its family are compared with. `family`: the same for its like.

    `ended`: as in `DiagnoseOrder`.
    """

    job: str
    tenant: str
    family: str
    cluster: str | None = None
    namespace: str | None = None
    ended: float | None = None

    def request(self) -> TaskRequest:
        """The order as work: the same for all runs of a family, so that one of them is kept and not each."""
        wanted = repr((self.tenant, self.cluster, self.family))
        key = f"{GOOD_RUN}:{sha256(wanted.encode('utf-8', 'surrogatepass')).hexdigest()[:32]}"
        return TaskRequest(GOOD_RUN, key, self.tenant, msgspec.json.encode(self).decode())


class DigestPayload(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Work out the digest of a week as it stands now."""

    tenant: str
    week: str

    def request(self) -> TaskRequest:
        """The order as work."""
        return TaskRequest(
            DIGEST, f"{DIGEST}:{self.tenant}:{self.week}"[:200], self.tenant, msgspec.json.encode(self).decode()
        )
