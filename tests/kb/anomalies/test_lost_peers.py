"""One rank fails and the others report it: what is told, by whole logs of eight ranks (kb.anomalies)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from bot.diagnosis.event_model import event_model
from kb.anomalies.analyse import RunFindings, find_anomalies
from kb.anomalies.build_run import build_run
from kb.anomalies.core.run import RunProfile
from kb.anomalies.runs.baseline_diff import baseline_of
from kb.model import Job, Resource, StreamRef
from kb.templates.miner import Miner

RANKS = range(8)
NOON = datetime(2026, 11, 3, 12, 0, tzinfo=UTC)
STEPS = 20


def stamp(second: float) -> str:
    """A time of the day."""
    return f"{NOON + timedelta(seconds=second):%Y-%m-%d %H:%M:%S.%f}"


def traceback_of(exception: str, function: str) -> str:
    """A traceback with one frame."""
    return (
        f'Traceback (most recent call last):\n  File "/app/glue.py", line 12, in {function}\n    wait()\n{exception}\n'
    )


def log_of(rank: int, steps: int = STEPS, *, build: str = "4.2.1", queue: int = 3) -> str:
    """The log of a rank that works well; its queue grows from `queue` on step 8."""
    lines = [
        f"{stamp(0.1 * rank)} INFO rower: seat taken, glue build {build}",
        f"{stamp(1)} INFO rower: crew is whole",
    ]
    for step in range(steps):
        length = 3 + step % 2 + (queue - 3) * max(0, step - 8)
        lines.append(f"{stamp(2 + step)} INFO rower: stroke {step} of 400 power {400 - step}.5 queue {length}")
    return "\n".join(lines) + "\n"


def a_run(logs: dict[str, str], state: str = "FAILED") -> RunProfile:
    """The run of some logs, by name; `0` to `7` are those of ranks."""
    tables = []
    for name, text in logs.items():
        rank = int(name) if name.isdigit() else None
        miner = Miner(StreamRef(f"logs/{name}.log", Resource(rank=rank), size=len(text)), year=2026)
        miner.feed(text.encode())
        tables.append(miner.finish())
    start = NOON.timestamp()
    return build_run(tables, (), Job(world_size=8, state=state, start=start, end=start + 120))


def good() -> RunProfile:
    """A run that went well."""
    launcher = "".join(f"{stamp(60)} gang: seat {rank} ended with status 0\n" for rank in RANKS)
    return a_run({**{str(rank): log_of(rank, 30) for rank in RANKS}, "gang": launcher}, "COMPLETED")


def look(logs: dict[str, str], state: str = "FAILED", *, twin: bool = True) -> RunFindings:
    """What stands out."""

    def read(uri: str, start: int, stop: int) -> bytes:
        return logs[uri.removeprefix("logs/").removesuffix(".log")].encode()[start:stop]

    baseline = baseline_of(good()) if twin else None
    return find_anomalies(a_run(logs, state), baseline, model=event_model(), read=read)


def told(found: RunFindings) -> list[str]:
    """The lines that are told."""
    spots = [event.spot for event in found.events]
    spots += [odd.spot for odd in (*found.absent, *found.drifted) if odd.spot is not None]
    return [spot.text for spot in spots]


LOST = traceback_of("glue.OarGone: seat 5 let go", "row")


def test_the_exception_of_one_rank_leads_though_all_others_raise_one_of_their_own() -> None:
    """In unknown words, and though theirs come first; what the rank logged above its exception is told as well."""
    logs = {str(rank): log_of(rank) + LOST for rank in RANKS}
    logs["5"] = log_of(5) + f"{stamp(22.5)} ERROR rower: blade 7 cracked along the grain\n"
    logs["5"] += traceback_of("glue.BladeCracked: no second blade", "row")
    for twin in (True, False):
        found = look(logs, twin=twin)
        assert told(found) == [
            "glue.BladeCracked: no second blade",
            f"{stamp(22.5)} ERROR rower: blade 7 cracked along the grain",
        ]
        assert found.nodes[0].node == "rank 5"


def test_an_exception_that_all_raise_is_nobodys_report() -> None:
    """They fail alike."""
    failed = traceback_of("glue.NoWater: the lake is closed", "row")
    found = look({str(rank): log_of(rank) + failed for rank in RANKS})
    assert told(found) == ["glue.NoWater: the lake is closed"]
    assert found.nodes == ()


def test_a_silent_rank_leads_where_all_others_speak_of_it() -> None:
    """Its last line stands for what it did not say, and the launcher's line says how it ended."""
    logs = {str(rank): log_of(rank) + LOST for rank in RANKS}
    logs["5"] = log_of(5)
    logs["gang"] = f"{stamp(22.4)} gang: seat 5 ended with status 41\n" + "".join(
        f"{stamp(24)} gang: seat {rank} ended with status 1\n" for rank in RANKS if rank != 5
    )
    found = look(logs)
    assert f"{stamp(22.4)} gang: seat 5 ended with status 41" in told(found)
    assert log_of(5).splitlines()[-1] in told(found)
    assert not any("OarGone" in line for line in told(found))
    assert found.nodes[0].node == "rank 5"


def test_a_silent_rank_is_not_accused_where_the_others_speak_of_something_else() -> None:
    """A launcher may have stopped it before it could fail like the others."""
    failed = traceback_of("glue.BadRecipe: no such dish among them", "cook")
    logs = {str(rank): log_of(rank) + failed for rank in RANKS}
    logs["5"] = log_of(5)
    assert told(look(logs)) == ["glue.BadRecipe: no such dish among them"]


def test_the_rank_that_says_a_line_of_the_start_in_other_words_is_named() -> None:
    """Versions and names are no numbers; the good run shows that none differs by design."""
    logs = {str(rank): log_of(rank, build="4.1.9" if rank == 2 else "4.2.1") for rank in RANKS}
    failed = traceback_of("glue.Mismatch: seats do not fit together", "row")
    found = look({name: text + failed for name, text in logs.items()})
    (odd,) = found.drifted
    assert (odd.node, odd.why) == ("rank 2", "4.1.9 here, 4.2.1 on all others")
    assert found.nodes[0].node == "rank 2"


def test_the_line_at_which_a_number_left_its_range_is_read_again() -> None:
    """Of the lines of a kind only the first and the last few are kept."""
    logs = {str(rank): log_of(rank, 60, queue=9 if rank == 6 else 3) for rank in RANKS}
    logs["6"] += traceback_of("glue.Flooded: the boat is full", "row")
    found = look(logs)
    (odd,) = found.drifted
    assert odd.node == "rank 6"
    assert odd.spot is not None
    assert "stroke 9 of" in odd.spot.text


def test_the_rank_that_never_printed_what_all_others_repeat_is_missed() -> None:
    """They wait for it, in a line that it does not know."""
    waits = "".join(f"{stamp(second)} INFO rower: 7 of 8 seats taken\n" for second in range(3, 33, 3))
    logs = {str(rank): f"{stamp(0)} INFO rower: seat taken, glue build 4.2.1\n{waits}" for rank in RANKS}
    logs["4"] = f"{stamp(0)} INFO rower: seat taken, glue build 4.2.1\n"
    found = look(logs, "CANCELLED")
    assert [odd.node for odd in found.absent] == ["rank 4"]
