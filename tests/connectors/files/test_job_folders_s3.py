"""Job folders in object storage, on a real S3 server: the same results as on disk, and errors when the store misbehaves."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import pytest

from connectors.base.contract import Deadline
from connectors.base.secret import Secret
from connectors.files import object_store
from connectors.files.job_folders import FoldersSettings, JobFolders
from kb.model import Job, JobRecord
from tests.support.common.job_folder_samples import ALL, collect_from, found_by, large
from tests.support.contract.subject import Subject
from tests.support.contract.suite import Contract
from tests.support.s3_server import ACCESS, SECRET, s3_server


@contextmanager
def _bucket() -> Iterator[str]:
    objects = {
        "llm-7b/5/logs/rank-0.log": b"zero\nTraceback\n",
        "llm-7b/5/logs/rank-1.log.gz": gzip.compress(b"one\n"),
        "llm-7b/5/logs/big.log": large(100_000),
        "llm-7b/5/logs/flight_recorder/nccl_trace_rank_0": json.dumps({"version": "2.4"}).encode(),
        "llm-70b/6/logs/rank-0.log": b"other\n",
        **{f"many/{number}/logs/rank-0.log": b"x\n" for number in range(9)},
    }
    with s3_server(objects) as url:
        yield url


@pytest.fixture(scope="module")
def bucket() -> Iterator[str]:
    """An S3 server with jobs, more than one answer lists."""
    with _bucket() as url:
        yield url


@pytest.fixture(scope="module", autouse=True)
def _service_read_once() -> Iterator[None]:
    """Let all clients share one reader of the library's own description of S3, half a second of parsing for each otherwise."""
    session = pytest.importorskip("botocore.session")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(session, "create_loader", cache(session.create_loader))
        yield


@pytest.fixture(autouse=True)
def _keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_S3_ACCESS", ACCESS)
    monkeypatch.setenv("TEST_S3_SECRET", SECRET)


def _s3(url: str, pattern: str = "s3://runs/{name}/{id}/logs") -> JobFolders:
    access, secret = Secret(env="TEST_S3_ACCESS"), Secret(env="TEST_S3_SECRET")
    return JobFolders(FoldersSettings(pattern, url=url, region="us-east-1", access_key=access, secret_key=secret))


def test_jobs_in_object_storage(bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Found by id or name as on disk, copied as on disk, over more pages than one."""
    monkeypatch.setattr(object_store, "PAGE", 4)
    folders = _s3(bucket)
    assert sorted(found_by(folders, "5")) == [("5", "llm-7b"), ("5", "many")]
    assert found_by(folders, "llm-70b") == [("6", "llm-70b")]
    assert len(folders.recent(ALL, Deadline.within(20))) == 11
    record = JobRecord(Job(id="5", name="llm-7b"), "folders")
    spool, codes = collect_from(folders, record, most=2 << 20, kinds=())
    assert codes == ["cut"]
    assert spool.logs["logs/folders/rank-0.log"] == b"zero\nTraceback\n"
    assert spool.logs["logs/folders/rank-1.log"] == b"one\n"
    assert b"Traceback (most recent" in spool.logs["logs/folders/big.log"]
    assert list(spool.parts) == ["flight_recorder/nccl_trace_rank_0"]


def test_object_storage_says_what_is_wrong(bucket: str) -> None:
    """A bucket that is not there, and a pattern that nothing fits."""
    missing = _s3(bucket, "s3://nothing/{name}/{id}").check(Deadline.within(60))
    assert (missing.works, missing.change) == (False, "check the bucket name in `pattern`, and `url`")
    unlike = _s3(bucket, "s3://runs/{name}/run-{id}").check(Deadline.within(60))
    assert (unlike.works, unlike.sent) == (False, "list s3://runs/")


class TestObjectStorageContract(Contract):
    """A misbehaving object store."""

    subject = Subject(
        "s3",
        _bucket,
        _s3,
        record=lambda name: JobRecord(Job(id="5", name=name), "folders"),
        skips={
            "broken_json": "the store speaks XML, and its library takes what it cannot read for an error of the server"
        },
    )
