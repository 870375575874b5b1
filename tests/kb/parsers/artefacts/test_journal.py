"""Entries of systemd's journal in both of its forms."""

import json

import pytest

from kb.parsers.artefacts.journal import JournalEntry, read_journal

AT = 1_763_000_000_123_456
ENTRY = JournalEntry(AT, "NVRM: Xid (PCI:0000:18:00): 79, GPU has fallen off the bus.", "kernel", "gpu-014", 3)


def exported(binary=False):
    """The entry as `journalctl -o export` prints it."""
    message = ENTRY.message.encode()
    head = b"__CURSOR=s=1\n__REALTIME_TIMESTAMP=%d\n_TRANSPORT=kernel\n_HOSTNAME=gpu-014\nPRIORITY=3\n" % AT
    body = b"MESSAGE\n" + len(message).to_bytes(8, "little") + message if binary else b"MESSAGE=" + message
    return head + body + b"\n\n"


def as_json(**more):
    """The entry as `journalctl -o json` prints it."""
    told = {"__REALTIME_TIMESTAMP": str(AT), "_TRANSPORT": "kernel", "_HOSTNAME": "gpu-014", "PRIORITY": "3"}
    return json.dumps(told | {"MESSAGE": ENTRY.message} | more).encode() + b"\n"


@pytest.mark.parametrize(
    "data", [exported(), exported(binary=True), as_json(), as_json(MESSAGE=list(ENTRY.message.encode()))]
)
def test_either_form(data):
    """Text or bytes, JSON or export: the entries are the same."""
    assert list(read_journal(data + data)) == [ENTRY, ENTRY]


def test_a_line_has_its_time_in_front():
    """Nanoseconds and Z, host and identifier as syslog has them; a message of several lines is one line."""
    line = JournalEntry(AT, "a\nb", "slurmd", "n1").line()
    assert line == b"2025-11-13T02:13:20.123456000Z n1 slurmd: a b\n"


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"plain\nwords\n",
        b"{",
        b"[1]",
        exported()[:-40] + b"MESSAGE\n\xff\xff\xff\xff\xff\xff\xff\x7f",
        as_json()[:40],
        b"\0" * 4096,
    ],
)
def test_what_breaks_off_is_left_out(data):
    """No entry is made of half of one, and nothing is read beyond the end."""
    assert [entry for entry in read_journal(data) if entry.message] == []


def test_odd_fields():
    """Times that are none, and fields of other types, do no harm."""
    assert list(read_journal(as_json(__REALTIME_TIMESTAMP="x"))) == []
    assert next(read_journal(as_json(PRIORITY=["3", "4"], MESSAGE=None))).message == ""
