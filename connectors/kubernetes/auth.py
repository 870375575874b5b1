"""Resolves how to reach a Kubernetes API server: in-cluster, from a kubeconfig file, or by an address in the settings.

A kubeconfig may name a command that returns a token. Only commands that the site allows are run, because the file may be
untrusted. Tokens are read for each request, because those of service accounts rotate.
"""

from __future__ import annotations

import base64
import binascii
import os
import re
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec
import yaml

from connectors.base.budget import Load
from connectors.base.commands import run_bounded
from connectors.base.contract import SourceFailed
from connectors.base.http import Endpoint, Login
from connectors.base.secret import Secret

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
LARGEST = 1 << 20  # bytes of a kubeconfig
PLUGIN_SECONDS = 20.0
EARLY = 30.0  # seconds before expiry at which a new token is requested
_LASTS = 300.0  # seconds, if the plugin names no expiry
_ENV = re.compile(r"(?:AWS|GOOGLE|CLOUDSDK|AZURE|AAD|OCI|KUBE|USE_GKE)[A-Z0-9_]{0,100}")
_KUBECONFIG = "check kubeconfig: and context: of this connector"


def in_cluster(load: Load, account: Path = ACCOUNT) -> Endpoint:
    """Return the server of the cluster that this process runs in, with the pod's service account.

    Raises:
        SourceFailed: This process does not run in a cluster.
    """
    host, port = os.environ.get("KUBERNETES_SERVICE_HOST"), os.environ.get("KUBERNETES_SERVICE_PORT", "443")
    if not host or not (account / "token").is_file():
        raise SourceFailed(
            "not_configured",
            "this process runs in no pod with a service account, and no cluster is configured",
            hint="set kubeconfig: (a file) or endpoint: (an address) for this connector",
        )
    address = f"[{host}]" if ":" in host else host
    login = Login(token=Secret(file=str(account / "token")))
    return Endpoint(f"https://{address}:{port}", login=login, ca_file=str(account / "ca.crt"), load=load)


@dataclass(frozen=True, slots=True)
class ExecPlugin:
    """An exec plugin of a kubeconfig: its command, its environment variables, and its API version."""

    words: tuple[str, ...]
    env: tuple[tuple[str, str], ...]
    version: str


class _CachedToken:
    """The last token that a plugin returned, and its expiry."""

    __slots__ = ("lock", "token", "until")

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.token = ""
        self.until = 0.0


@dataclass(frozen=True, slots=True)
class ExecToken(Secret):
    """A token from an exec plugin, renewed shortly before it expires."""

    plugin: ExecPlugin = field(default_factory=lambda: ExecPlugin((), (), ""))
    held: _CachedToken = field(default_factory=_CachedToken, repr=False, compare=False)

    def value(self) -> str:
        """Return the token.

        Raises:
            SourceFailed: The command failed or returned no token.
        """
        with self.held.lock:
            if time.time() >= self.held.until - EARLY:
                self.held.token, self.held.until = _run(self.plugin)
            return self.held.token


@dataclass(frozen=True, slots=True)
class KubeconfigToken(Secret):
    """A token stored in a kubeconfig file, read each time."""

    user: str = ""

    def value(self) -> str:
        """Return the token.

        Raises:
            SourceFailed: The file no longer contains it.
        """
        user = _named(_read(Path(self.file or "")), "users", "user", self.user)
        token = user.get("token")
        if not isinstance(token, str) or not token.strip() or not token.strip().isprintable():
            raise SourceFailed("not_configured", f"user {self.user!r} of {self.file} no longer has a token")
        return token.strip()


def from_kubeconfig(path: str, context: str | None, load: Load, allowed: Sequence[str], keep: Path) -> Endpoint:
    """Return the server and login of a kubeconfig's context. `keep`: a private folder for certificates from the file.

    `allowed`: the plugin commands that may run, spelled as in the file.

    Raises:
        SourceFailed: The file is unreadable or incomplete, or requires something that is not allowed.
    """
    file = Path(path).expanduser()
    config = _read(file)
    chosen = context or config.get("current-context")
    if not isinstance(chosen, str) or not chosen:
        raise SourceFailed("not_configured", f"{file} has no current context", hint=_KUBECONFIG)
    pair = _named(config, "contexts", "context", chosen)
    cluster = _named(config, "clusters", "cluster", str(pair.get("cluster", "")))
    name = str(pair.get("user", ""))
    user = _named(config, "users", "user", name) if name else {}
    if cluster.get("insecure-skip-tls-verify"):
        raise SourceFailed(
            "not_configured",
            f"{file} disables the TLS verification of {pair.get('cluster')!r}, which Signalbox does not allow",
            hint="put the server's CA into certificate-authority",
        )
    login = Login(token=_token(file, user, name, allowed))
    if login.token is None and user.get("username"):
        raise SourceFailed("not_configured", f"{file} uses a password, which Kubernetes no longer supports")
    try:
        return Endpoint(
            str(cluster.get("server", "")),
            login=login,
            ca_file=_pem(file, cluster, "certificate-authority", keep),
            client_cert=_client_cert(file, user, keep),
            load=load,
        )
    except ValueError as error:
        raise SourceFailed("not_configured", f"{file}: {error}", hint=_KUBECONFIG) from None


def _read(file: Path) -> Mapping[str, Any]:
    try:
        with file.open("rb") as handle:
            data = handle.read(LARGEST + 1)
        parsed = yaml.safe_load(data) if len(data) <= LARGEST else None
    except OSError as error:
        raise SourceFailed(
            "not_configured", f"{file} cannot be read: {error.strerror or error}", hint=_KUBECONFIG
        ) from None
    except (yaml.YAMLError, RecursionError, ValueError):
        parsed = None  # the parser's message may quote a secret
    if not isinstance(parsed, dict):
        raise SourceFailed("not_configured", f"{file} is not a kubeconfig", hint=_KUBECONFIG)
    return parsed


def _named(told: Mapping[str, Any], plural: str, singular: str, name: str) -> Mapping[str, Any]:
    listed = told.get(plural)
    for item in listed if isinstance(listed, list) else ():
        if isinstance(item, dict) and item.get("name") == name and isinstance(item.get(singular), dict):
            found: Mapping[str, Any] = item[singular]
            return found
    raise SourceFailed("not_configured", f"the kubeconfig has no {singular} {name[:80]!r}", hint=_KUBECONFIG)


def _token(file: Path, user: Mapping[str, Any], name: str, allowed: Sequence[str]) -> Secret | None:
    if user.get("tokenFile"):
        return Secret(file=str(file.parent / str(user["tokenFile"])))
    if user.get("token"):
        return KubeconfigToken(file=str(file), user=name)
    if isinstance(user.get("exec"), dict):
        return ExecToken(env="(a plug-in)", plugin=_plugin(user["exec"], allowed))
    if user.get("auth-provider"):
        raise SourceFailed("not_configured", f"{file} uses an auth-provider, which Kubernetes no longer supports")
    return None


def _plugin(section: Mapping[str, Any], allowed: Sequence[str]) -> ExecPlugin:
    command, args = section.get("command"), section.get("args") or []
    env = section.get("env") or []
    if not isinstance(command, str) or not isinstance(args, list) or not isinstance(env, list):
        raise SourceFailed("not_configured", "the kubeconfig's exec plugin is malformed", hint=_KUBECONFIG)
    if command not in allowed:
        raise SourceFailed(
            "not_configured",
            f"the kubeconfig runs {command[:100]!r} to get a token, which is not allowed",
            hint="add it to plugins: of this connector if you trust it, or use a service account token",
        )
    pairs = tuple((str(pair.get("name", "")), str(pair.get("value", ""))) for pair in env if isinstance(pair, dict))
    odd = [key for key, _ in pairs if not _ENV.fullmatch(key)]
    if odd:  # PATH or LD_PRELOAD would turn the allowed command into another one
        raise SourceFailed(
            "not_configured", f"the kubeconfig sets {odd[0][:60]!r} for its exec plugin, which is not allowed"
        )
    return ExecPlugin((command, *map(str, args)), pairs, str(section.get("apiVersion", "")))


def _run(plugin: ExecPlugin) -> tuple[str, float]:
    told = {"apiVersion": plugin.version, "kind": "ExecCredential", "spec": {"interactive": False}}
    env = {"KUBERNETES_EXEC_INFO": msgspec.json.encode(told).decode(), **dict(plugin.env)}
    words = ["/usr/bin/env", *(f"{key}={value}" for key, value in env.items()), *plugin.words]
    ran = run_bounded(words, PLUGIN_SECONDS, LARGEST)
    if ran.trouble:
        raise SourceFailed("unauthorised", f"{plugin.words[0]} returned no token: {ran.trouble}")
    try:
        answer = msgspec.json.decode(ran.output, type=_Credential)
    except msgspec.MsgspecError:
        raise SourceFailed("unauthorised", f"{plugin.words[0]} did not return an ExecCredential") from None
    token, ends = answer.status.token.strip(), answer.status.expirationTimestamp
    if not token or not token.isprintable():
        raise SourceFailed("unauthorised", f"{plugin.words[0]} returned no token")
    return token, ends.timestamp() if ends is not None else time.time() + _LASTS


class _CredentialStatus(msgspec.Struct):
    token: str = ""
    expirationTimestamp: datetime | None = None  # noqa: N815 - the field's own name


class _Credential(msgspec.Struct):
    status: _CredentialStatus


def _pem(file: Path, told: Mapping[str, Any], key: str, keep: Path) -> str | None:
    """Return the path of a certificate or key: as the file names it, or a private copy of embedded data."""
    inside = told.get(f"{key}-data")
    if inside is None:
        return str(file.parent / str(told[key])) if told.get(key) else None
    try:
        data = base64.b64decode(str(inside), validate=True)
    except (binascii.Error, ValueError):
        raise SourceFailed("not_configured", f"{key}-data of {file} is not base64", hint=_KUBECONFIG) from None
    return _write_private(data, keep)


def _client_cert(file: Path, user: Mapping[str, Any], keep: Path) -> str | None:
    cert, key = (_pem(file, user, text, keep) for text in ("client-certificate", "client-key"))
    if cert is None or key is None:
        return cert
    try:
        return _write_private(Path(cert).read_bytes() + b"\n" + Path(key).read_bytes(), keep)
    except OSError as error:
        raise SourceFailed("not_configured", f"{error.filename} cannot be read: {error.strerror}") from None


def _write_private(data: bytes, keep: Path) -> str:
    handle, path = tempfile.mkstemp(dir=keep, suffix=".pem")
    with os.fdopen(handle, "wb") as out:
        out.write(data)
    return path
