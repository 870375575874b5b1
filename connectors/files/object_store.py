"""An S3-compatible object store as a file store, through fsspec: paged listings, range reads, no redirects."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import Any

from connectors.base.budget import Budget, Load
from connectors.base.contract import Deadline, Failure, SourceFailed
from connectors.base.secret import Secret
from connectors.files.local import FileEntry, FileHandle

PAGE = 1000  # keys that an object store lists in one response
TRIES = 3
PAUSE = 0.2  # seconds between attempts
CONNECT_SECONDS, READ_SECONDS = 5.0, 20.0


@dataclass(frozen=True, slots=True)
class ObjectLogin:
    """How to reach an S3-compatible store; see FoldersSettings."""

    url: str | None = None
    region: str | None = None
    access_key: Secret | None = None
    secret_key: Secret | None = None
    session_token: Secret | None = None
    anonymous: bool = False
    ca_file: str | None = None


class ObjectStore:
    """An S3-compatible object store. Paths are `bucket/key`, folders are prefixes that end in a slash."""

    def __init__(self, login: ObjectLogin, load: Load | None = None) -> None:
        self._login = login
        self._budget = Budget(load or Load(requests=6000, bytes=8 << 30, calls=16))
        self._made: tuple[tuple[str, ...], Any] | None = None
        self._lock = threading.Lock()

    def listed(self, folder: str, deadline: Deadline) -> Iterator[FileEntry]:
        """See FileStore."""
        for page in self._pages(folder, deadline, "/"):
            for prefix in page.get("CommonPrefixes", ()):
                path = f"{_bucket(folder)}/{prefix['Prefix'].rstrip('/')}"
                yield FileEntry(path, path.rsplit("/", 1)[-1], folder=True)
            yield from _objects(page, _bucket(folder))

    def below(self, folder: str, deadline: Deadline) -> Iterator[FileEntry]:
        """See FileStore."""
        for page in self._pages(folder, deadline, ""):
            yield from _objects(page, _bucket(folder))

    def looked_up(self, path: str, deadline: Deadline) -> FileEntry | None:
        """See FileStore."""
        bucket, _, key = path.partition("/")
        if not key:
            return FileEntry(path, path, folder=True)
        inside = self._ask("list_objects_v2", deadline, Bucket=bucket, Prefix=f"{key}/", MaxKeys=1)
        if inside.get("KeyCount"):
            return FileEntry(path, path.rsplit("/", 1)[-1], folder=True)
        page = self._ask("list_objects_v2", deadline, Bucket=bucket, Prefix=key, MaxKeys=1)
        return next((file_entry for file_entry in _objects(page, bucket) if file_entry.path == path), None)

    def opened(self, entry: FileEntry, deadline: Deadline) -> FileHandle:
        """See FileStore."""
        return _RangeReader(self, entry, deadline)

    def part(self, path: str, start: int, stop: int, deadline: Deadline) -> bytes:
        """Return the bytes [start, stop) of an object.

        Raises:
            SourceFailed: The store failed, or sent more than was requested ("bad_answer").
        """
        asked = f"GET s3://{path} bytes {start}-{stop - 1}"
        data = bytes(
            self._call(lambda left: self._system().cat_file(path, start=start, end=stop, timeout=left), deadline, asked)
        )
        self._budget.read(len(data))
        if len(data) > stop - start:
            raise SourceFailed("bad_answer", f"s3://{path}: the server sent more than was requested", asked=asked)
        return data

    def _pages(self, folder: str, deadline: Deadline, delimiter: str) -> Iterator[dict[str, Any]]:
        bucket, _, key = folder.partition("/")
        known: dict[str, Any] = {"Bucket": bucket, "Prefix": f"{key}/" if key else "", "MaxKeys": PAGE}
        known |= {"Delimiter": delimiter} if delimiter else {}
        more: dict[str, Any] = {}
        while True:
            page = self._ask("list_objects_v2", deadline, **known, **more)
            yield page
            token = page.get("NextContinuationToken")
            if not page.get("IsTruncated") or not token or token == more.get("ContinuationToken"):
                return
            more = {"ContinuationToken": token}

    def _ask(self, method: str, deadline: Deadline, **words: Any) -> dict[str, Any]:
        asked = f"{method} s3://{words['Bucket']}/{words.get('Prefix', '')}"
        found = self._call(lambda left: self._system().call_s3(method, timeout=left, **words), deadline, asked)
        if not isinstance(found, dict):
            raise SourceFailed("bad_answer", "the response is not a listing", asked=asked)
        return found

    def _call(self, call: Any, deadline: Deadline, asked: str) -> Any:
        with self._budget.call(deadline, asked):
            tries = 0
            while True:
                deadline.check(asked)
                try:
                    return call(max(0.01, deadline.left()))
                except SourceFailed:
                    raise
                except Exception as error:  # noqa: BLE001 - three libraries' errors, told by kind
                    failed = _failed(error, asked)
                    pause = _wait_of(error)
                tries += 1
                passing = failed.kind == "rate_limited" or (tries < TRIES and failed.kind in _PASSING)
                if not passing or pause >= deadline.left():
                    raise failed
                time.sleep(pause)

    def _system(self) -> Any:
        """Return the fsspec file system, rebuilt when the keys change."""
        login = self._login
        keys = tuple(item.value() if item else "" for item in (login.access_key, login.secret_key, login.session_token))
        with self._lock:
            if self._made is None or self._made[0] != keys:
                self._made = (keys, _system(login, keys))
            return self._made[1]


def _system(login: ObjectLogin, keys: tuple[str, ...]) -> Any:
    try:
        from aiobotocore.httpsession import AIOHTTPSession  # noqa: PLC0415 - an optional dependency
        from s3fs import S3FileSystem  # noqa: PLC0415
    except ImportError:
        hint = "install signalbox[s3]"
        raise SourceFailed(
            "not_configured", "object storage needs an optional library that is not installed", hint=hint
        ) from None

    class Straight(AIOHTTPSession):  # type: ignore[misc]
        """Does not follow redirects, because a redirect to another host is not trusted."""

        async def _get_session(self, proxy_url: str | None) -> Any:
            session = await super()._get_session(proxy_url)
            return SimpleNamespace(request=partial(session.request, allow_redirects=False))

    config = {
        "connect_timeout": CONNECT_SECONDS,
        "read_timeout": READ_SECONDS,
        "retries": {"total_max_attempts": 1},  # retries happen here, within the deadline
        "http_session_cls": Straight,
    }
    style = {"s3": {"addressing_style": "path"}} if login.url else {}
    known = {"endpoint_url": login.url, "region_name": login.region, "verify": login.ca_file}
    key, secret, token = (text or None for text in keys)
    made = S3FileSystem(
        anon=login.anonymous,
        key=key,
        secret=secret,
        token=token,
        client_kwargs={name: value for name, value in known.items() if value},
        config_kwargs={**config, **style},
        skip_instance_cache=True,
        use_listings_cache=False,
    )
    made.retries = 1
    return made


@dataclass(slots=True)
class _RangeReader:
    """An object that is read range by range."""

    store: ObjectStore
    entry: FileEntry
    deadline: Deadline
    at: int = 0

    def read(self, size: int, /) -> bytes:
        stop = min(self.at + size, self.entry.size)
        if stop <= self.at:
            return b""
        data = self.store.part(self.entry.path, self.at, stop, self.deadline)
        self.at += len(data)
        return data

    def seek(self, place: int, /) -> int:
        self.at = place
        return place

    def close(self) -> None:
        """Do nothing; no resources are held."""


def _objects(page: dict[str, Any], bucket: str) -> Iterator[FileEntry]:
    for content in page.get("Contents", ()):
        path = f"{bucket}/{content['Key']}"
        if not path.endswith("/"):  # an empty object that represents a folder
            written = content.get("LastModified")
            yield FileEntry(
                path, path.rsplit("/", 1)[-1], False, int(content["Size"]), written.timestamp() if written else None
            )


def _bucket(path: str) -> str:
    return path.partition("/")[0]


_OF_CODE: dict[str, Failure] = {
    "AccessDenied": "forbidden",
    "AllAccessDisabled": "forbidden",
    "InvalidAccessKeyId": "unauthorised",
    "SignatureDoesNotMatch": "unauthorised",
    "ExpiredToken": "unauthorised",
    "InvalidToken": "unauthorised",
    "NoSuchBucket": "missing",
    "NoSuchKey": "missing",
    "SlowDown": "rate_limited",
    "RequestTimeTooSkewed": "refused",
    "PermanentRedirect": "redirected",
}
_OF_STATUS: dict[int, Failure] = {401: "unauthorised", 403: "forbidden", 404: "missing", 429: "rate_limited"}
_OF_ERROR: dict[str, Failure] = {
    "FSTimeoutError": "timeout",
    "TimeoutError": "timeout",
    "ConnectTimeoutError": "unreachable",
    "ReadTimeoutError": "timeout",
    "EndpointConnectionError": "unreachable",
    "SSLError": "unreachable",
    "NoCredentialsError": "unauthorised",
    "PartialCredentialsError": "unauthorised",
    "PermissionError": "forbidden",
    "FileNotFoundError": "missing",
    "ResponseParserError": "bad_answer",
}
_PASSING = frozenset({"server_error", "unreachable", "bad_answer"})
_HINTS: dict[Failure, str] = {
    "unauthorised": "check access_key, secret_key and session_token",
    "forbidden": "the key needs s3:ListBucket on the bucket and s3:GetObject on its objects",
    "missing": "check the bucket name in `pattern`, and `url`",
    "unreachable": "check `url`",
}


def _failed(error: Exception, asked: str) -> SourceFailed:
    """Return the failure, based on the store's error code if it returned one."""
    kind = next((found for cause in _chain(error) if (found := _kind_of_answer(cause))), None)
    kind = kind or next(
        (_OF_ERROR[type(cause).__name__] for cause in _chain(error) if type(cause).__name__ in _OF_ERROR), None
    )
    kind = kind or ("unreachable" if isinstance(error, OSError) else "bad_answer")
    words = "".join(char if char.isprintable() else " " for char in f"{type(error).__name__}: {error}")[:300]
    return SourceFailed(kind, words, asked=asked, hint=_HINTS.get(kind, ""))


def _chain(error: BaseException) -> Iterator[BaseException]:
    seen: BaseException | None = error
    while seen is not None:
        yield seen
        seen = seen.__cause__ or seen.__context__


def _answer(error: BaseException) -> tuple[str, int, dict[str, Any]]:
    """Return the store's error code, the status and the headers of its response, if there was one."""
    response = getattr(error, "response", None)
    if not isinstance(response, dict):
        return "", 0, {}
    about = response.get("ResponseMetadata", {})
    return (
        str(response.get("Error", {}).get("Code", "")),
        int(about.get("HTTPStatusCode") or 0),
        about.get("HTTPHeaders", {}),
    )


def _kind_of_answer(error: BaseException) -> Failure | None:
    code, status, _ = _answer(error)
    if code in _OF_CODE:
        return _OF_CODE[code]
    if status in _OF_STATUS:
        return _OF_STATUS[status]
    return "server_error" if status >= 500 else "redirected" if 300 <= status < 400 else "refused" if status else None


def _wait_of(error: BaseException) -> float:
    """The number of seconds to wait before the next attempt: as the store requests, otherwise a short pause."""
    value = next(
        (headers["retry-after"] for cause in _chain(error) if "retry-after" in (headers := _answer(cause)[2])), ""
    )
    return max(PAUSE, float(value)) if value.strip().isdecimal() else PAUSE
