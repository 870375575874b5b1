"""A real Elasticsearch or OpenSearch for tests, at the address in SIGNALBOX_TEST_ELASTICSEARCH.

The address may hold a user and a password (`https://user:password@127.0.0.1:9200`); certificates of a test server are not
verified. SIGNALBOX_TEST_ELASTICSEARCH_KEY may hold an encoded API key instead. Indices get names of their own, which begin
with `signalbox-test-`, and are deleted at the end.
"""

from __future__ import annotations

import base64
import json
import os
import ssl
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit, urlunsplit
from urllib.request import Request, urlopen
from uuid import uuid4

import pytest

from connectors.base.http import Endpoint, Login
from connectors.base.secret import Secret
from connectors.log_stores.elasticsearch.connector import ElasticsearchSettings
from connectors.log_stores.elasticsearch.settings import Flavour

VARIABLE = "SIGNALBOX_TEST_ELASTICSEARCH"
KEY = f"{VARIABLE}_KEY"
PASSWORD = f"{VARIABLE}_PASSWORD"
NS = 1_000_000_000
BATCH = 5000  # documents in one request


def named() -> bool:
    """Return whether a server is named at all."""
    return bool(os.environ.get(VARIABLE))


@dataclass(frozen=True)
class ElasticServer:
    """A running server, without the user in its address."""

    url: str
    user: str
    password: str
    flavour: Flavour

    def call(self, method: str, path: str, body: object = None, *, lines: bool = False) -> Any:
        """Return the JSON of an answer."""
        data = None
        if body is not None:
            data = body.encode() if isinstance(body, str) else json.dumps(body).encode()
        kind = "application/x-ndjson" if lines else "application/json"
        request = Request(f"{self.url}{path}", data, {"Content-Type": kind, **self._login()}, method=method)  # noqa: S310
        context = ssl._create_unverified_context() if self.url.startswith("https") else None  # noqa: S323 - a test server
        try:
            with urlopen(request, timeout=120, context=context) as answer:  # noqa: S310 - the address that was given
                return json.loads(answer.read() or b"null")
        except HTTPError as error:
            raise AssertionError(f"{method} {path}: {error.code} {error.read()[:500]!r}") from error

    def _login(self) -> dict[str, str]:
        if key := os.environ.get(KEY):
            return {"Authorization": f"ApiKey {key}"}
        if self.user:
            pair = base64.b64encode(f"{self.user}:{self.password}".encode()).decode()
            return {"Authorization": f"Basic {pair}"}
        return {}

    def settings(self, index: str, **more: Any) -> ElasticsearchSettings:
        """Return the settings of the connector for an index."""
        login = Login()
        if self.user:
            os.environ[PASSWORD] = self.password
            login = Login(user=self.user, password=Secret(env=PASSWORD))
        key = Secret(env=KEY) if os.environ.get(KEY) else None
        return ElasticsearchSettings(Endpoint(self.url, login), index=index, flavour=self.flavour, api_key=key, **more)

    @contextmanager
    def index(self, mapping: Mapping[str, str], limits: Mapping[str, object] | None = None) -> Iterator[str]:
        """Yield the name of a new index. `mapping`: field → type; `limits`: settings of the index."""
        name = f"signalbox-test-{uuid4().hex[:12]}"
        properties = {field: {"type": kind} for field, kind in mapping.items()}
        settings = {"number_of_replicas": 0, **(limits or {})}
        self.call("PUT", f"/{name}", {"settings": settings, "mappings": {"properties": properties}})
        try:
            yield name
        finally:
            self.call("DELETE", f"/{name}")

    def store(self, index: str, docs: Iterable[Mapping[str, Any]]) -> int:
        """Store documents, whose times are in nanoseconds, and return their number."""
        batch: list[str] = []
        count = 0
        for doc in docs:
            seconds, rest = divmod(doc["@timestamp"], NS)
            plain = {**doc, "@timestamp": f"{seconds * 1000 + rest // 1_000_000}"}
            batch += ['{"create":{}}', json.dumps(plain)]
            count += 1
            if len(batch) >= 2 * BATCH:
                self._send(index, batch)
                batch = []
        if batch:
            self._send(index, batch)
        self.call("POST", f"/{index}/_refresh")
        return count

    def _send(self, index: str, batch: list[str]) -> None:
        answer = self.call("POST", f"/{index}/_bulk", "\n".join(batch) + "\n", lines=True)
        assert not answer["errors"], next(item for item in answer["items"] if item["create"]["status"] >= 300)


def running() -> ElasticServer:
    """Return the server; skip and say why without one."""
    address = os.environ.get(VARIABLE, "")
    if not address:
        pytest.skip(f"{VARIABLE} names no server (an address such as http://127.0.0.1:9200)")
    parts = urlsplit(address)
    plain = urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path.rstrip("/"), "", ""))
    server = ElasticServer(plain, parts.username or "", parts.password or "", "elasticsearch")
    try:
        about = server.call("GET", "/")
    except URLError as error:
        pytest.skip(f"{VARIABLE}: {plain} does not answer: {error.reason}")
    flavour: Flavour = "opensearch" if about["version"].get("distribution") == "opensearch" else "elasticsearch"
    return ElasticServer(plain, server.user, server.password, flavour)
