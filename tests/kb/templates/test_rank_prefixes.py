"""How the lines of a stream name their rank, learned from the first of them (kb.templates.rank_prefixes)."""

from __future__ import annotations

from random import Random

import pytest

from bot.diagnosis.rank_forms import found_streams
from bot.diagnosis.template_pool import tables
from connectors.bundles.streams import discover
from kb.anomalies.build_run import build_run
from kb.anomalies.nodes.peers import silent
from kb.model import Job
from kb.templates.masking import LineKind, fold, shape_of
from kb.templates.rank_prefixes import own_prefix_of, rank_prefix_of, shared_own_prefix_of, shared_prefix_of

TEXTS = (
    "opened part {n} of the corpus",
    "INFO pulse at {n}, all is well",
    "WARNING slow read of {n} kB",
    "moved {n} rows to the device",
    "gradient norm {n}.5",
    "window shuffled",
)


def a_log(form: str, ranks: int = 8, lines: int = 300) -> bytes:
    """Lines of ranks in turn by chance, each behind a prefix of the given form; four ranks are on a host."""
    chance, told = Random(3), []
    for number in range(lines):
        rank = chance.randrange(ranks)
        host = "red" if rank < 4 else "blue"
        prefix = form.format(rank=rank, host=host, local=rank % 4, second=number % 60, thousand=number)
        told.append(prefix + chance.choice(TEXTS).format(n=number))
    return "\n".join([*told, ""]).encode()


@pytest.mark.parametrize(
    "form",
    [
        "{host}/{rank} ~ ",
        "{host}:{rank:>3} | ",
        "w{rank:02d}> ",
        "<{rank}> ",
        "2026-03-01 10:00:{second:02d} {host} #{rank}# ",
        "proc-{rank}\t",
        "(task {rank}) ",
        "still-{rank}.pod: ",
        "seat {rank} @ {host} :: ",
        "loom.{rank} ",
        "loom-{rank:<3} | ",
        "10:00:{second:02d} {host}-0/{rank} ",
        "01/Mar/2026:10:00:{second:02d} seat {rank} ",
    ],
)
def test_the_form_of_a_prefix_is_learned(form: str) -> None:
    """Its number is the rank, of one digit or two."""
    learned = rank_prefix_of(a_log(form, 12))
    assert learned is not None
    for rank in (3, 11):
        line = form.format(rank=rank, host="red", second=7).encode() + b"window shuffled"
        match = learned.match(fold(line))
        assert match is not None
        assert int(line[slice(*match.span("rank"))]) == rank


@pytest.mark.parametrize(
    "form",
    [
        "[{host} {local}] ",  # a number of its node, not of the job
        "step {thousand} | ",  # a counter
        "10:{second}:00 ",  # a clock
        "[rank{rank}]: ",  # known without learning
        "10:00:{second:02d} [rank{rank}]: ",  # likewise
        "local={local} host={host} msg=",  # a number of its node under a key
        "",
    ],
)
def test_other_numbers_are_no_ranks(form: str) -> None:
    """They repeat per node, rise, or are no number of the process."""
    assert rank_prefix_of(a_log(form)) is None


LOGGERS = ("mill.io", "mill.core.pulse", "mill.io.reader", "mill.core", "mill.core", "mill.feed")


def with_loggers(form: str, ranks: int = 8, lines: int = 300) -> bytes:
    """Lines of ranks in turn by chance, each with its logger, which goes with the text and not with the rank."""
    chance, told = Random(5), []
    for number in range(lines):
        kind = chance.randrange(len(TEXTS))
        text = TEXTS[kind].format(n=number)
        told.append(form.format(logger=LOGGERS[kind], rank=chance.randrange(ranks), text=text, second=number % 60))
    return "\n".join([*told, ""]).encode()


@pytest.mark.parametrize(
    "form",
    [
        "2026-03-01 10:00:{second:02d},500 - {logger} - w{rank:02d}: {text}",
        "2026-03-01 10:00:{second:02d},500: {logger}.cc:41] {text} (seat {rank})",
        "2026-03-01 10:00:{second:02d} {text} [worker={rank}]",
    ],
)
def test_a_rank_behind_a_logger_or_at_the_end_is_learned(form: str, tmp_path) -> None:
    """What stands before it goes with the kind of line; the last word in brackets may be the speaker."""
    path = tmp_path / "train.log"
    path.write_bytes(with_loggers(form))
    run = build_run(tables(discover([path]).streams, year=2026, workers=1).tables)
    (window,) = [event for event in run.events.values() if "window shuffled" in event.text]
    assert set(window.nodes) == {f"rank {rank}" for rank in range(8)}


@pytest.mark.parametrize(
    "form", ["10:00:{second:02d} {text} (gpu {rank})", "10:00:{second:02d} {text} (took {rank} ms)"]
)
def test_a_last_number_of_a_device_or_an_amount_is_no_rank(form: str) -> None:
    """Devices are counted on each node, and an amount is followed by its unit."""
    assert rank_prefix_of(with_loggers(form)) is None


def test_a_journal_of_a_jobs_units_is_a_log_of_the_job(tmp_path) -> None:
    """Its lines are the ranks'; one that names only some of the job's ranks stays the machine's."""
    path = tmp_path / "journal.txt"
    path.write_bytes(with_loggers("2026-03-01T10:00:{second:02d}+0000 red mill@{rank}[41]: {text}"))
    found = tables(discover([path]).streams, year=2026, workers=1).tables
    assert build_run(found).heard == {f"rank {rank}" for rank in range(8)}
    assert "rank 3" not in build_run(found, job=Job(world_size=16)).heard


def test_steps_of_epochs_are_no_ranks() -> None:
    """They start over now and then, but one line kind says them."""
    lines = [f"batch {number % 6} | {TEXTS[number % 3].format(n=number)}" for number in range(300)]
    assert rank_prefix_of("\n".join([*lines, ""]).encode()) is None


def test_ranks_of_an_unknown_form_are_compared_with_each_other(tmp_path) -> None:
    """The line of one rank is that rank's, and templates are free of the prefix."""
    path = tmp_path / "train.log"
    path.write_bytes(a_log("{host}/{rank:>2} ~ ", 12) + b"blue/11 ~ seal of the manifest is broken\n")
    run = build_run(tables(discover([path]).streams, year=2026, workers=1).tables)
    told = {event.text: set(event.nodes) for event in run.events.values()}
    assert told["seal of the manifest is broken"] == {"rank 11"}
    assert told["window shuffled"] == {f"rank {rank}" for rank in range(12)}


@pytest.mark.parametrize(
    "form", ["t=10:00:{second:02d} lvl=info rk={rank} ", '<135>1 trainer {thousand} [job@1 member="{rank}"] ']
)
def test_a_key_of_structured_lines_is_learned_beside_lines_of_a_launcher(form: str, tmp_path) -> None:
    """Its lines are the ranks', whatever it is called; those of the launcher are the log's own."""
    path = tmp_path / "train.log"
    path.write_bytes(b"launcher: one more worker starts\n" * 200 + a_log(form))
    run = build_run(tables(discover([path]).streams, year=2026, workers=1).tables)
    assert run.heard == {str(path)} | {f"rank {rank}" for rank in range(8)}
    (window,) = [event for event in run.events.values() if "window shuffled" in event.text]
    assert set(window.nodes) == {f"rank {rank}" for rank in range(8)}


JSON_FORMS = (
    '{{"UNIT": "run@member{rank}.service", "PRIORITY": "6", "MESSAGE": "%s"}}',
    '{{"at": 10{second}, "w": {rank}, "payload": "%s"}}',
    '{{"body": "%s", "labels": {{"app": "loom", "replica": "{rank}"}}}}',
    '{{"host": "{host}-0", "source": "lm-{host}/seat-{rank}", "line": "%s"}}',
)


@pytest.mark.parametrize("form", JSON_FORMS)
def test_a_key_of_json_is_learned_wherever_it_is(form: str, tmp_path) -> None:
    """Also behind the message and behind a word; the message is the template, whatever its key."""
    path = tmp_path / "train.log"
    lines = a_log(form.replace("%s", "\x00")).decode().splitlines()
    path.write_text("".join(form_and_text.replace("\x00", text) + "\n" for form_and_text, text in map(_moved, lines)))
    run = build_run(tables(discover([path]).streams, year=2026, workers=1).tables)
    told = {event.text: set(event.nodes) for event in run.events.values()}
    assert told["window shuffled over there"] == {f"rank {rank}" for rank in range(8)}


def _moved(line: str) -> tuple[str, str]:
    """An object, and the text that `a_log` put behind it."""
    head, _, text = line.rpartition("}")
    return head + "}", text + " over there"


@pytest.mark.parametrize("form", ["w{rank}> ", '{{"member": {rank}, "log": "'])
def test_tracebacks_that_name_their_rank_do_not_hide_the_form_of_all_other_lines(form: str) -> None:
    """Most lines of the head of a log that failed soon are tracebacks; a form that contradicts them is none."""
    lines = a_log(form).decode().splitlines()
    told = "\n".join(lines[:100] + [line.replace("> ", f"> [rank{line[1]}]: ") for line in lines[100:]] + [""])
    other = "\n".join([*lines[:100], *(f"[rank{number % 8}]: {line}" for number, line in enumerate(lines)), ""])
    assert rank_prefix_of(told.encode()) is not None
    assert rank_prefix_of(other.encode()) is None


def test_a_form_counts_among_the_lines_that_name_no_rank_in_a_known_form() -> None:
    """A short run that failed: three lines in four are of tracebacks, which name their rank as PyTorch does."""
    frames = "".join(f'[rank{n % 7}]:   File "/srv/lm/loop.py", line {n}, in step\n' for n in range(300))
    assert rank_prefix_of(a_log("10:00:{second:02d} seat {rank} ", lines=100) + frames.encode()) is not None


def test_a_number_that_torchrun_counts_on_each_node_is_no_rank_where_lines_name_another(tmp_path) -> None:
    """Lines that name no rank behind it are then of the rank that its other lines show; on the first node, both are the same."""
    forms = {
        "b.log": "[default{local}]:10:00:{second:02d} | rank {global_} | ",
        "a.log": "[default{local}]:rank={local} ",
    }
    heard = {}
    for name, form in forms.items():
        made = [
            form.format(local=number % 4, global_=number % 4 + 4, second=number % 60) + TEXTS[number % 6]
            for number in range(120)
        ]
        (tmp_path / name).write_text("\n".join([*made, "[default2]:sluice is shut", ""]))
        run = build_run(tables(discover([tmp_path / name]).streams, year=2026, workers=1).tables)
        heard[name] = {event.text: set(event.nodes) for event in run.events.values()}["sluice is shut"]
    assert heard == {"b.log": {"rank 6"}, "a.log": {"rank 2"}}


def test_the_prefix_of_a_log_of_one_rank_is_learned() -> None:
    """It names that rank in most lines, of several kinds; a number that a known prefix covers, or another one, is none."""
    forms = {"seat 3 @ red :: ": True, "seat 4 @ red :: ": False, "": False, "[rank3]: ": False}
    for form, wanted in forms.items():
        head = "\n".join([f"{form}{TEXTS[number % 6].format(n=number)}" for number in range(60)] + [""]).encode()
        assert (own_prefix_of(head, 3) is not None) == wanted, form
    learned = own_prefix_of("\n".join(f"seat 3 @ red :: {text}" for text in TEXTS * 5).encode(), 3)
    assert learned is not None
    shape = shape_of(fold(b"seat 3 @ red :: Traceback (most recent call last):"), speaker=learned)
    assert shape.kind is LineKind.HEAD


def logs_of_ranks(form: str, ranks: int = 4, kinds: int = 3) -> list[tuple[bytes, int]]:
    """A log of each rank with lines of a few kinds, behind a prefix of the given form."""
    return [
        (
            "\n".join([form.format(rank=rank) + TEXTS[n % kinds].format(n=7 * n) for n in range(30)] + [""]).encode(),
            rank,
        )
        for rank in range(ranks)
    ]


def test_the_prefix_of_logs_of_one_rank_each_is_learned_from_all_of_them() -> None:
    """Three kinds of lines are enough, too few for one log by itself; a number that is the same in all logs is none."""
    heads = logs_of_ranks("INFO <{rank}> ")
    assert all(own_prefix_of(head, rank) is None for head, rank in heads)
    assert shared_own_prefix_of(heads) is not None
    assert shared_own_prefix_of(logs_of_ranks("INFO <1> ")) is None
    assert shared_own_prefix_of(logs_of_ranks("INFO <{rank}> ", kinds=2)) is None
    assert shared_own_prefix_of(logs_of_ranks("")) is None
    assert shared_own_prefix_of([]) is None


def test_of_the_prefix_of_logs_of_one_rank_each_a_sample_of_the_lines_decides() -> None:
    """Lines that come in turn, as of each step, are not all of one kind in it."""
    kinds = ["<{rank}> " + TEXTS[0], "<{rank}> " + TEXTS[1], "<{rank}> " + TEXTS[2], *("plain " + TEXTS[3],) * 5]
    for turn in range(8):
        heads = [
            ("\n".join(kinds[(n + turn) % 8].format(rank=rank, n=7) for n in range(801)).encode(), rank)
            for rank in range(8)
        ]
        assert shared_own_prefix_of(heads) is None, turn
    heads = [
        ("\n".join(f"<{rank}> " + TEXTS[n % 6].format(n=7) for n in range(801)).encode(), rank) for rank in range(8)
    ]
    assert shared_own_prefix_of(heads) is not None


def test_all_logs_of_one_rank_each_are_read_in_the_same_form(tmp_path) -> None:
    """A rank that prints more kinds of lines than the others still shares with them the lines that all print."""
    for head, rank in logs_of_ranks("2026-03-01 10:00:00 ERROR [rank{rank}] "):
        more = [
            f"ERROR [rank{rank}] cold part {n} of pool".replace("part", word)
            for n, word in enumerate("abcd")
            if rank == 2
        ]
        text = head.decode() + "\n".join([*more, f"2026-03-01 10:00:09 ERROR [rank{rank}] aborted", ""])
        (tmp_path / f"rank-{rank}.log").write_text(text)
    run = build_run(tables(discover([tmp_path]).streams, workers=1).tables)
    told = {event.text: set(event.nodes) for event in run.events.values()}
    assert told["aborted"] == {f"rank {rank}" for rank in range(4)}


def test_time_and_level_of_a_learned_prefix_are_the_lines() -> None:
    """They stand before the rank, which the rest of the line does not repeat."""
    learned = rank_prefix_of(a_log("2026-03-01 10:00:{second:02d}|INFO|{rank}|"))
    shape = shape_of(fold(b"2026-03-01 10:00:07|ERROR|3|window shuffled"), dated=True, speaker=learned)
    assert shape.template is not None
    assert (shape.template.text, shape.template.level) == ("window shuffled", "error")
    assert shape.stamp == (0, 16)


def test_a_host_before_a_known_rank_is_part_of_the_prefix(tmp_path) -> None:
    """Else each template would come once for every host."""
    path = tmp_path / "train.log"
    path.write_bytes(a_log("10:00:{second:02d}|{host}|rank={rank}|"))
    run = build_run(tables(discover([path]).streams, year=2026, workers=1).tables)
    told = {event.text: set(event.nodes) for event in run.events.values()}
    assert told["window shuffled"] == {f"rank {rank}" for rank in range(8)}


def test_a_host_behind_a_rank_is_part_of_the_prefix(tmp_path) -> None:
    """Else no traceback behind it would be known as one."""
    path = tmp_path / "train.log"
    path.write_bytes(a_log("seat {rank} @ {host} :: "))
    run = build_run(tables(discover([path]).streams, year=2026, workers=1).tables)
    told = {event.text: set(event.nodes) for event in run.events.values()}
    assert told["window shuffled"] == {f"rank {rank}" for rank in range(8)}


def test_a_form_is_learned_from_the_logs_of_all_hosts() -> None:
    """One alone may hold none of the first ranks; numbers that each host counts from 0 are not those of the job."""
    told = a_log("10:00:{second:02d} {host}:{rank} INFO ", 8).splitlines(keepends=True)
    hosts = [b"".join(line for line in told if host in line) for host in (b"red:", b"blue:")]
    assert rank_prefix_of(hosts[1]) is None
    assert shared_prefix_of(hosts) is not None
    assert shared_prefix_of([hosts[0], hosts[0]]) is None
    assert shared_prefix_of(hosts[:1]) is None


def test_lines_that_continue_another_name_no_rank() -> None:
    """Values on lines of their own do not hide the prefix of the first one."""
    told = a_log("[seat {rank} 10:00:{second:02d}] ", 8).replace(
        b"\n", b"\n    loss: 2.0\n    rows: 17\n    took: 0.2\n"
    )
    assert rank_prefix_of(told) is not None


def nodes_of(form: str, nodes: int = 4, each: int = 4, lines: int = 240, behind: str = "") -> list[bytes]:
    """The logs of nodes, whose lines name ranks of the whole job; every fifth one is of another kind, with another prefix (`behind`)."""
    chance, told = Random(9), []
    for node in range(nodes):
        mine = []
        for number in range(lines):
            rank = node * each + chance.randrange(each)
            other = behind and number % 5 == 4
            prefix, texts = (behind, ("StoneError: it stands", "chips of {n} g")) if other else (form, TEXTS)
            text = chance.choice(texts).format(n=number)
            mine.append(prefix.format(rank=rank, node=f"mill{'abcdefgh'[node]}", second=number % 60) + text)
        told.append("\n".join([*mine, ""]).encode())
    return told


PLACE = "{node}: [2026-03-01 10:00:{second:02d},250] [INFO] [grindstones.py:120:lower_the_upper_stone] [m{rank}] "


@pytest.mark.parametrize(
    ("form", "behind"), [(PLACE, PLACE), ("2026-03-01 10:00:{second:02d} INFO  [mill-{rank}] ", "[mill-{rank}] ")]
)
def test_numbers_of_files_are_nodes_if_their_lines_name_several_ranks_each(form: str, behind: str, tmp_path) -> None:
    """Both where the rank stands far behind, and where it stands behind two prefixes."""
    for node, log in enumerate(nodes_of(form, behind=behind)):
        (tmp_path / f"hall-n{node}.log").write_bytes(log)
    found = found_streams([tmp_path]).streams
    assert all(ref.resource.rank is None for ref in found)
    run = build_run(tables(found, year=2026, workers=1).tables, job=Job(world_size=16))
    assert run.heard == {f"rank {rank}" for rank in range(16)}
    assert all(len(event.nodes) > 12 for event in run.events.values())


def test_numbers_of_files_are_ranks_if_their_lines_name_no_others(tmp_path) -> None:
    """Those that name none, and those that name each its own."""
    for rank in range(4):
        (tmp_path / f"hall-n{rank}.log").write_bytes(nodes_of(f"<m{rank}> ", 1)[0])
    assert [ref.resource.rank for ref in found_streams([tmp_path]).streams] == [0, 1, 2, 3]


def test_an_object_behind_a_time_is_no_prefix() -> None:
    """Its keys tell which event a line is of."""
    form = '2026-03-01T10:00:{second:02d}Z {{"event": "turn", "member": {rank}, "n": 3}} '
    assert rank_prefix_of(a_log(form)) is None or b"key" in rank_prefix_of(a_log(form)).pattern


def test_journals_of_nodes_are_logs_of_the_job_though_a_rank_did_not_start(tmp_path) -> None:
    """All of them together name the job's ranks; the one that is missing left no line."""
    form = "Mar 01 10:00:{second:02d} {node} mill[7]: lvl=info stone={rank} msg="
    for node, log in zip("abcd", nodes_of(form), strict=True):
        kept = [line for line in log.split(b"\n") if b"stone=13 " not in line]
        (tmp_path / f"mill{node}.syslog").write_bytes(b"\n".join(kept))
    mined = tables(found_streams([tmp_path]).streams, year=2026, workers=1).tables
    run = build_run(mined, job=Job(world_size=16))
    assert run.ranks == {f"rank {rank}" for rank in range(16) if rank != 13}
    assert [odd.node for odd in silent(run)] == ["rank 13"]
