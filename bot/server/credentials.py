"""What a caller presents to prove who it is, before anything of its request is believed.

Headers arrive as any bytes. Nothing here raises for them: what cannot be read is a wrong secret.
"""

from __future__ import annotations

import base64
import hmac
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import TypeAlias

from bot.config.settings import Serve, Webhook
from bot.pages.signed_links import LEAST_SECRET
from connectors.base.contract import CheckResult, SourceFailed
from connectors.base.secret import Secret

NO_SUCH = b"signalbox: a secret nobody has"  # compared for unknown names, so that timing reveals no name
LEAST_SHARED = 16  # characters of a secret that callers send
SLACK_LATE = 300.0  # seconds that a signed request of Slack may be old
GRAFANA_SIGNATURE = "X-Grafana-Alerting-Signature"
_NEW = 'generate one: python -c "import secrets; print(secrets.token_urlsafe(32))"'


def presented(authorization: str) -> bytes:
    """Return the token or password of an Authorization header, or nothing. `authorization`: each character is a byte, as in WSGI."""
    scheme, _, rest = authorization.encode("latin-1", "replace").partition(b" ")
    rest = rest.strip(b" \t")
    if scheme.lower() == b"bearer":
        return rest
    if scheme.lower() != b"basic":
        return b""
    try:
        return base64.b64decode(rest, validate=True).partition(b":")[2]
    except ValueError:
        return b""


def knows(secret: Secret | None, authorization: str) -> bool:
    """Whether an Authorization header contains the secret. Takes as long for a name that does not exist (None)."""
    wanted = wanted_by(secret)
    return hmac.compare_digest(presented(authorization), wanted) and wanted is not NO_SUCH


def wanted_by(secret: Secret | None) -> bytes:
    """Return the value of a secret, or NO_SUCH if there is none or it cannot be read."""
    try:
        return secret.value().encode() if secret is not None else NO_SUCH
    except SourceFailed:
        return NO_SUCH


@dataclass(frozen=True, slots=True)
class HttpRefusal:
    """Why a request is refused before its body is read."""

    status: HTTPStatus
    why: str


Admission: TypeAlias = Callable[[str, str, Mapping[str, str]], int | HttpRefusal]
"""Decides by method, path and headers (WSGI names without HTTP_) how many bytes of body a request may have."""
UNKNOWN = HttpRefusal(HTTPStatus.UNAUTHORIZED, "unknown webhook or wrong secret")


def admission(webhooks: Mapping[str, Webhook], largest: int, *, slack: bool) -> Admission:
    """Return what decides before a body is read. `largest`: bytes; `slack`: whether Slack posts to /slack/events.

    Only a caller that presents the secret, or a signature, which needs the body to be verified, may send one.
    """

    def decide(method: str, path: str, headers: Mapping[str, str]) -> int | HttpRefusal:
        if method != "POST":
            return 0
        if slack and path == "/slack/events":
            return largest if _from_slack(headers) else HttpRefusal(HTTPStatus.UNAUTHORIZED, "no signature of Slack")
        for prefix in ("/webhooks/", "/hooks/ended/"):
            if path.startswith(prefix):
                hook = webhooks.get(path.removeprefix(prefix))
                given = headers.get("AUTHORIZATION", "")
                if hook is not None and not given and headers.get(GRAFANA_SIGNATURE.upper().replace("-", "_")):
                    return largest
                return largest if knows(hook.secret if hook else None, given) else UNKNOWN
        return 0

    return decide


def _from_slack(headers: Mapping[str, str]) -> bool:
    """Whether a request has the form and the time of a signed one. Whether the signature is right depends on the body."""
    signature, stamp = headers.get("X_SLACK_SIGNATURE", ""), headers.get("X_SLACK_REQUEST_TIMESTAMP", "")
    if not (stamp.isascii() and stamp.isdecimal() and len(stamp) <= 12):
        return False
    return signature.startswith("v0=") and len(signature) == 67 and abs(time.time() - int(stamp)) <= SLACK_LATE


def check_secrets(served: Serve) -> list[tuple[str, str, CheckResult]]:
    """Return whether each secret of the service can be read and is long enough: name, kind, result."""
    wanted: list[tuple[str, str, Secret, int]] = [
        (f"webhooks.{name}", "secret", hook.secret, LEAST_SHARED) for name, hook in sorted(served.webhooks.items())
    ]
    if served.metrics.on and served.metrics.secret is not None:
        wanted.append(("metrics", "secret", served.metrics.secret, LEAST_SHARED))
    if served.pages is not None:
        wanted.append(("pages", "secret", served.pages.secret, LEAST_SECRET))
    return [(name, kind, _checked(secret, least)) for name, kind, secret, least in wanted]


def _checked(secret: Secret, least: int) -> CheckResult:
    try:
        length = len(secret.value())
    except SourceFailed as failed:
        return CheckResult(False, str(failed), "", failed.hint or "")
    if length < least:
        return CheckResult(False, f"the secret has {length} characters; at least {least} are needed", "", _NEW)
    return CheckResult(True, f"the secret has {length} characters")
