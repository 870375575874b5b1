"""A real git server for tests: `git http-backend` behind Python's web server, with a branch that a hook protects."""

from __future__ import annotations

import base64
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.doubles.listening import Answering, listening

REALM = {"WWW-Authenticate": 'Basic realm="git"'}
# as forges do it: nobody pushes to the protected branch, it only moves by a merge on the server
HOOK = """#!/bin/sh
while read old new ref; do
  if [ "$ref" = refs/heads/main ]; then
    echo "GH006: Protected branch update failed for $ref." >&2
    exit 1
  fi
done
"""


@contextmanager
def git_server(root: Path, token: str) -> Iterator[str]:
    """The address of a server of the bare repositories below `root`, for anybody with the token."""
    backend = Path(subprocess.run(["git", "--exec-path"], capture_output=True, check=True, text=True).stdout.strip())
    wanted = f"Basic {base64.b64encode(f'x-access-token:{token}'.encode()).decode()}"

    class Handler(Answering):
        def reply(self) -> None:
            body = self.body()
            headers = self.lowered()
            if headers.get("authorization") != wanted:
                self.send(401, b"", "text/plain", REALM)
                return
            path, _, query = self.path.partition("?")
            env = {
                "PATH": os.environ["PATH"],
                "GIT_PROJECT_ROOT": str(root),
                "GIT_HTTP_EXPORT_ALL": "1",
                "REQUEST_METHOD": self.command,
                "PATH_INFO": path,
                "QUERY_STRING": query,
                "CONTENT_TYPE": headers.get("content-type", ""),
                "CONTENT_LENGTH": str(len(body)),
                "HTTP_CONTENT_ENCODING": headers.get("content-encoding", ""),
                "GIT_PROTOCOL": headers.get("git-protocol", ""),
                "REMOTE_USER": "x-access-token",
            }
            ran = subprocess.run(
                [str(backend / "git-http-backend")], input=body, env=env, capture_output=True, check=True
            )
            head, _, data = ran.stdout.partition(b"\r\n\r\n")
            told = dict(line.split(": ", 1) for line in head.decode().splitlines())
            status = int(told.pop("Status", "200").split()[0])
            kind = told.pop("Content-Type", "text/plain")
            self.send(status, data, kind, told)

    with listening(Handler) as url:
        yield url


def protect(bare: Path) -> None:
    """Refuse pushes to main."""
    hook = bare / "hooks" / "pre-receive"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(HOOK)
    hook.chmod(0o755)
