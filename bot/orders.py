"""What can be written down as work: the payload of each kind, and the key under which equal requests are one."""

from __future__ import annotations

from hashlib import sha256
from typing import Literal

import msgspec

from bot.worklist import Wanted

DIAGNOSE = "diagnose"


class DiagnoseOrder(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Diagnose a job. `why`: who asked, in words, as "alerts GPUHang, XidErrors"."""

    job: str
    tenant: str
    cluster: str | None = None
    namespace: str | None = None
    why: str = ""
    source: Literal["webhook", "slack", "scheduler"] = "webhook"

    def key(self) -> str:
        """The same for all who ask for the same job."""
        wanted = repr((self.tenant, self.cluster, self.namespace, self.job))
        return f"{DIAGNOSE}:{sha256(wanted.encode('utf-8', 'surrogatepass')).hexdigest()[:32]}"

    def wanted(self) -> Wanted:
        """The order as work."""
        return Wanted(DIAGNOSE, self.key(), self.tenant, msgspec.json.encode(self).decode())
