"""The text that an incident keeps."""

from __future__ import annotations

from bot.authoring.selftest import evidence_of
from bot.diagnosis import replay_text as diagnosis_replay_text
from bot.diagnosis.replay_text import replay_text

FULL = b"OSError: [Errno 28] No space left on device: '/scratch/p/c-3'\n"


def kept(known, **streams):
    """The lines kept of these streams."""
    named = {name.replace("_", "-") + ".log": text for name, text in streams.items()}
    return replay_text(evidence_of(known, known.matcher(), named)).decode().splitlines()


def test_lines_of_one_shape_are_kept_once(known):
    """A thousand iteration lines are one."""
    steps = b"".join(b"step %d of 5000 done\n" % number for number in range(1000))

    lines = kept(known, rank_1=steps + FULL)

    assert lines[0] == "#! source: rank-1.log"
    assert FULL.decode().rstrip() in lines
    assert sum(line.startswith("step") and line.endswith("done") for line in lines) == 1


def test_lines_keep_the_order_of_the_log(known):
    """What a rule hit stays between its neighbours, so that an error is not parted from the line below that explains it."""
    below = b"  the quota belongs to project p\n"

    assert kept(known, rank_1=b"opening the file\n" + FULL + below)[1:] == [
        "opening the file",
        FULL.decode().rstrip(),
        below.decode().rstrip(),
    ]


def test_what_a_rule_hit_is_kept_before_other_lines(known, monkeypatch):
    """If there is no room for all lines, those of rule hits stay."""
    monkeypatch.setattr(diagnosis_replay_text, "MOST", 400)
    letters = b"".join(b"%s was read\n" % (bytes([97 + number]) * 30) for number in range(20))

    assert FULL.decode().rstrip() in kept(known, rank_1=letters + FULL + letters.upper())


def test_each_stream_stands_under_its_name(known):
    """Streams with nothing in them are left out."""
    lines = kept(known, rank_1=FULL, rank_2=b"\n\n", rank_3=b"other words\n")

    assert lines == ["#! source: rank-1.log", FULL.decode().rstrip(), "#! source: rank-3.log", "other words"]


def test_what_is_kept_has_a_bound(known, monkeypatch):
    """Beyond the bound it is cut at a line."""
    monkeypatch.setattr(diagnosis_replay_text, "MOST", 2000)
    many = b"".join(b"%s said so\n" % (bytes([97 + number % 26]) * (1 + number)) for number in range(60))

    text = replay_text(evidence_of(known, known.matcher(), {"a.log": many}))

    assert 100 < len(text) <= 2000
    assert text.endswith(b"\n")


def test_secrets_are_masked(known):
    """Nothing is kept with a token in it."""
    token = "hf_" + "abcdEFGH1234" * 3

    assert token not in "".join(kept(known, rank_1=f"using {token} to log in\n".encode()))
