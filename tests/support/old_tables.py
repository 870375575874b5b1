"""The tables as earlier versions made them, before there were steps: what their code gave, as SQL, with some rows.

`{time}`, `{bytes}` and `{serial}` are the words of the database at hand.
"""

from __future__ import annotations

import json

import zstandard

WORDS = {
    "sqlite": {"time": "DATETIME", "bytes": "BLOB", "serial": "INTEGER", "open": "X'", "shut": "'"},
    "postgresql": {
        "time": "TIMESTAMP WITHOUT TIME ZONE",
        "bytes": "BYTEA",
        "serial": "SERIAL",
        "open": "'\\x",
        "shut": "'",
    },
}
_INCIDENTS = """
CREATE TABLE incident (
    id {serial} NOT NULL,
    created_at {time} NOT NULL,
    report_id VARCHAR(128) NOT NULL,
    fingerprint VARCHAR NOT NULL,
    rulebook_digest VARCHAR NOT NULL,
    job_id VARCHAR,
    job_name VARCHAR,
    bundle VARCHAR,
    verdict VARCHAR NOT NULL,
    phase VARCHAR NOT NULL,
    fault VARCHAR,
    rule VARCHAR,
    summary VARCHAR NOT NULL,
    PRIMARY KEY (id),
    UNIQUE (report_id)
);
CREATE INDEX ix_incident_created_at ON incident (created_at);
CREATE INDEX ix_incident_fault ON incident (fault);
CREATE INDEX ix_incident_fingerprint ON incident (fingerprint);
CREATE INDEX ix_incident_job_id ON incident (job_id);
CREATE TABLE schema_version (
    id INTEGER NOT NULL,
    version INTEGER NOT NULL,
    PRIMARY KEY (id)
);
CREATE TABLE replay (
    incident_id INTEGER NOT NULL,
    text_zstd {bytes} NOT NULL,
    size INTEGER NOT NULL,
    cut BOOLEAN NOT NULL,
    PRIMARY KEY (incident_id),
    FOREIGN KEY(incident_id) REFERENCES incident (id)
);
CREATE TABLE report (
    incident_id INTEGER NOT NULL,
    json_zstd {bytes} NOT NULL,
    PRIMARY KEY (incident_id),
    FOREIGN KEY(incident_id) REFERENCES incident (id)
)
"""
_WORK = """
CREATE TABLE work (
    id {serial} NOT NULL,
    kind VARCHAR NOT NULL,
    "key" VARCHAR(200) NOT NULL,
    tenant VARCHAR NOT NULL,
    payload VARCHAR NOT NULL,
    state VARCHAR NOT NULL,
    created_at {time} NOT NULL,
    asked_at {time} NOT NULL,
    beat_at {time},
    done_at {time},
    worker VARCHAR,
    tries INTEGER NOT NULL,
    repeats INTEGER NOT NULL,
    result VARCHAR,
    error VARCHAR,
    PRIMARY KEY (id)
);
CREATE INDEX ix_work_key ON work ("key");
CREATE INDEX ix_work_state ON work (state);
CREATE UNIQUE INDEX work_open_key ON work ("key") WHERE state IN ('waiting', 'running')
"""
_ROWS = """
INSERT INTO incident (created_at, report_id, fingerprint, rulebook_digest, job_id, job_name, bundle, verdict, phase,
    fault, rule, summary) VALUES ('2026-03-02 08:30:00.000000', 'r1', '4ac1', 'sha256:5f0c', '47110', 'llm-70b',
    '/var/spool/night', 'fault', 'failed', 'gpu_fell_off_bus', 'xid-catalogue', 'GPU 3 of n7 fell off the bus');
INSERT INTO incident (created_at, report_id, fingerprint, rulebook_digest, verdict, phase, summary)
    VALUES ('2026-03-03 00:00:00.000000', 'r2', '4ac2', 'sha256:5f0c', 'no_fault', 'completed', 'it ended well');
INSERT INTO report (incident_id, json_zstd) VALUES (1, {open}{report}{shut});
INSERT INTO report (incident_id, json_zstd) VALUES (2, {open}{report}{shut});
INSERT INTO replay (incident_id, text_zstd, size, cut) VALUES (1, {open}{replay}{shut}, 300000, TRUE);
INSERT INTO replay (incident_id, text_zstd, size, cut) VALUES (2, {open}{replay}{shut}, 9, FALSE)
"""
_WORK_ROWS = """
INSERT INTO work (kind, "key", tenant, payload, state, created_at, asked_at, tries, repeats)
    VALUES ('diagnose', 'a', 'red', '{payload}', 'waiting', '2026-03-04 05:06:07.000000', '2026-03-04 05:06:08.000000', 0, 2);
INSERT INTO work (kind, "key", tenant, payload, state, created_at, asked_at, done_at, worker, tries, repeats, result)
    VALUES ('diagnose', 'a', 'red', '{payload}', 'done', '2026-03-01 05:06:07.000000', '2026-03-01 05:06:07.000000',
    '2026-03-01 05:07:00.000000', 'host:1', 1, 0, '1')
"""
REPORT = b'{"schema":"signalbox.report/1"}'
REPLAY = b"one line\n"
PAYLOAD = {"job": "47110", "tenant": "red"}


def statements(version: int, kind: str) -> list[str]:
    """What makes a database of that version, with its rows, on a kind of database."""
    more = {
        "report": zstandard.compress(REPORT).hex(),
        "replay": zstandard.compress(REPLAY).hex(),
        "payload": json.dumps(PAYLOAD),
    }
    noted = f"INSERT INTO schema_version (id, version) VALUES (1, {version})"  # noqa: S608 - a number of ours
    parts = [_INCIDENTS, noted, _ROWS] + ([_WORK, _WORK_ROWS] if version == 2 else [])
    return [text.format(**WORDS[kind], **more) for part in parts for text in part.split(";\n")]
