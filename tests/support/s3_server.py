"""A real S3 server on this host: moto's, in a separate process, with the buckets and keys that a test creates."""

from __future__ import annotations

import importlib.util
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress

import httpx
import pytest

ACCESS, SECRET = "test-access", "test-secret-key"
_PROGRAM = """
import logging, sys
from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server
logging.getLogger("werkzeug").setLevel(logging.ERROR)
server = make_server("127.0.0.1", 0, DomainDispatcherApplication(create_backend_app), threaded=True)
print(f"port {server.server_port}", flush=True)
server.serve_forever()
"""


@contextmanager
def s3_server(objects: Mapping[str, bytes], bucket: str = "runs") -> Iterator[str]:
    """A server with these objects; its address. Skips, saying so, where moto is not installed."""
    for name in ("moto", "s3fs", "flask_cors"):
        if importlib.util.find_spec(name) is None:
            pytest.skip(f"{name} is not installed: object storage was not tested")
    env = {**os.environ, "AWS_ACCESS_KEY_ID": ACCESS, "AWS_SECRET_ACCESS_KEY": SECRET}
    words = [sys.executable, "-W", "ignore", "-c", _PROGRAM]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=env, text=True) as server:
        try:
            found = re.match(r"port (\d+)", server.stdout.readline())
            assert found, "moto's server did not start"
            url = f"http://127.0.0.1:{found[1]}"
            with httpx.Client(base_url=url, timeout=30) as client:
                client.put(f"/{bucket}", headers=_login()).raise_for_status()
                for key, data in objects.items():
                    client.put(f"/{bucket}/{key}", content=data, headers=_login()).raise_for_status()
            yield url
        finally:
            with suppress(ProcessLookupError):
                server.send_signal(signal.SIGKILL)


def _login() -> dict[str, str]:
    return {
        "Authorization": f"AWS4-HMAC-SHA256 Credential={ACCESS}/20260101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=x"
    }
