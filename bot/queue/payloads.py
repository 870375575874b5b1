"""Task payloads: the content of each kind of task, and the key that makes equal requests one task."""

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
    """Diagnose a job. `why`: the trigger in words, such as "alerts GPUHang, XidErrors".

    `last`: only this many seconds before its end; `deep`: all lines of all logs; `state`: the job's, as the asker gives it. `ended`: when the run in question ended,
    seconds since the epoch; None: the last run. `private_to`: the only Slack user who gets the answer; such a task is not
    shared with other requests.
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
    private_to: str | None = None
    state: str | None = None

    def key(self) -> str:
        """Return the key, equal for all requests for the same job and state, and for the same person if it is private."""
        whose = () if self.private_to is None else (self.private_to,)
        whose = whose if self.state is None else (*whose, "state", self.state)
        wanted = repr((self.tenant, self.cluster, self.namespace, self.job, self.last, self.deep, *whose))
        return f"{DIAGNOSE}:{sha256(wanted.encode('utf-8', 'surrogatepass')).hexdigest()[:32]}"

    def request(self) -> TaskRequest:
        """Return the payload as a task request."""
        return TaskRequest(DIAGNOSE, self.key(), self.tenant, msgspec.json.encode(self).decode())


class RecentJobsPayload(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """List a person's recent failed jobs. `who`: chat user; `users`: scheduler users, none for everybody's jobs."""

    tenant: str
    who: str
    users: tuple[str, ...] = ()

    def request(self) -> TaskRequest:
        """Return the payload as a task request."""
        return TaskRequest(
            RECENT, f"{RECENT}:{self.tenant}:{self.who}"[:200], self.tenant, msgspec.json.encode(self).decode()
        )


class KeepBaselinePayload(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Keep a successful run as a baseline for failed runs. `family`: the key of similar runs.

    `ended`: as in `DiagnosePayload`.
    """

    job: str
    tenant: str
    family: str
    cluster: str | None = None
    namespace: str | None = None
    ended: float | None = None

    def request(self) -> TaskRequest:
        """Return the payload as a task request. All runs of a family share a key, so only one is kept."""
        wanted = repr((self.tenant, self.cluster, self.family))
        key = f"{GOOD_RUN}:{sha256(wanted.encode('utf-8', 'surrogatepass')).hexdigest()[:32]}"
        return TaskRequest(GOOD_RUN, key, self.tenant, msgspec.json.encode(self).decode())


class DigestPayload(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Compute the current digest of a week."""

    tenant: str
    week: str

    def request(self) -> TaskRequest:
        """Return the payload as a task request."""
        return TaskRequest(
            DIGEST, f"{DIGEST}:{self.tenant}:{self.week}"[:200], self.tenant, msgspec.json.encode(self).decode()
        )
