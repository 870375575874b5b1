"""Lines that were cut count once, with all their words, however the stream is read."""

from __future__ import annotations

import random
from textwrap import wrap

import pytest

from kb.templates.miner import Miner
from kb.templates.table import TemplateTable
from kb.templates.wrapped_lines import part_of, width_of
from tests.support.template_samples import REF, mined, part

_CLOCK = "2026-11-03T04:12:{:02d}.123456789Z"


def narrow(width: int, lines: int = 300, *, rank: int = 1) -> tuple[bytes, bytes]:
    """A log as it was written, and as a terminal of a width shows it."""
    chance = random.Random(width)
    whole = [
        f"[rank{rank}]: 2026-11-03 04:12:{number % 60:02d} INFO store: "
        + " ".join(f"shard {chance.randint(0, 10 ** chance.randint(1, 9))} is here" for _ in range(number % 7 + 1))
        for number in range(lines)
    ]
    cut = [line[at : at + width] for line in whole for at in range(0, len(line), width)]
    return "\n".join(whole).encode() + b"\n", "\n".join(cut).encode() + b"\n"


def counted(table: TemplateTable) -> dict[str, int]:
    """How often each text came."""
    return {template.template.text: template.count for template in table.templates.values()}


@pytest.mark.parametrize("width", [80, 100, 132])
def test_what_a_terminal_cut_is_put_together(width):
    """The first lines tell the width; the templates are those of the lines before they were cut, and so are the words."""
    whole, cut = narrow(width)
    assert (None, width) == (width_of(whole), width_of(cut))
    assert counted(mined(whole)) == counted(wrapped(cut, width))


@pytest.mark.parametrize("block", [7, 80, 81, 1000, 1 << 20])
def test_it_does_not_matter_how_a_cut_log_is_fed(block):
    """No block ends within a line that was cut."""
    _, cut = narrow(80)
    assert wrapped(cut, 80) == wrapped(cut, 80, block=block)


def wrapped(text: bytes, width: int, *, block: int = 1 << 20) -> TemplateTable:
    """The table of a log that a terminal cut."""
    miner = Miner(REF, width=width)
    for at in range(0, len(text), block):
        miner.feed(text[at : at + block])
    return miner.finish()


def test_a_place_shows_the_line_put_together():
    """Who looks at a place sees the whole line, at the offset and number of its first part."""
    text = b"2026-11-03 04:12:00 INFO abc" + b" it" * 30
    cut = b"\n".join(text[at : at + 60] for at in range(0, len(text), 60)) + b"\n2026-11-03 04:12:01 done\n"
    places = sorted(
        (template.first[0] for template in wrapped(cut, 60).templates.values()), key=lambda place: place.offset
    )
    assert [(0, 1, text.decode()), (len(cut) - 25, 3, "2026-11-03 04:12:01 done")] == [
        (place.offset, place.number, place.line) for place in places
    ]


@pytest.mark.parametrize(
    "text",
    [
        b"".join(b"%s\n" % line.encode() for line in wrap("words of a book that nobody stamped " * 400, 80)),
        b"2026-11-03 04:12:00 went on\n" * 200,
        b"".join(b"2026-11-03 04:12:00 INFO " + b"=" * 55 + b"\n2026-11-03 04:12:00 short\n" for _ in range(100)),
        b"x" * 80 + b"\n",
        b"",
    ],
    ids=["no prefixes", "all as wide", "rulers", "one line", "nothing"],
)
def test_what_no_terminal_cut_is_left_alone(text):
    """Lines of the same width, rulers and plain text are not joined."""
    assert width_of(text) is None


def cri(*parts: tuple[str, str, str]) -> bytes:
    """Lines as the runtime of containers writes them: the flow, F or P, and the text."""
    return "".join(
        f"{_CLOCK.format(number % 60)} {flow} {mark} {text}\n" for number, (flow, mark, text) in enumerate(parts)
    ).encode()


def test_parts_of_a_containers_line_are_one_line():
    """What follows a P belongs to it, though the other flow comes between."""
    long = "request " + "x" * 2000
    text = cri(
        ("stdout", "P", long), ("stderr", "F", "a warning"), ("stdout", "P", long), ("stdout", "F", "rest of the words"),
        ("stdout", "F", "done"),
    )  # fmt: skip
    told = counted(mined(text))
    assert {key: count for key, count in told.items() if not key.startswith("request x")} == {"a warning": 1, "done": 1}
    assert sum(told.values()) == 3


@pytest.mark.parametrize("size", [4096, 16384])
def test_lines_that_a_shipper_cut_are_one_line(size):
    """The rest of a cut line, which comes without a prefix, is not a line."""
    line = b"2026-11-03 04:12:00 INFO tensor " + b"ab " * 12_000
    cut = (
        b"".join(line[at : at + size] + b"\n" for at in range(0, len(line), size)) + b"2026-11-03 04:12:01 INFO done\n"
    )
    assert [template.count for template in mined(cut).templates.values()] == [1, 1]
    half = len(cut) // 2
    assert sum(template.count for template in part(cut, half, None, warm=64 * 1024).templates.values()) == 1


def test_lines_that_were_shortened_are_no_cut_lines():
    """Without prefixes nothing says that a line is the rest of another; nor is an exception's last line one."""
    line = b"labels: " + b"-100, " * 682
    assert len(line[:4096]) == 4096
    text = (line[:4096] + b"\n") * 3 + b"something else\n2026-11-03 04:12:00 " + line[:4076] + b"\nKeyError: 'labels'\n"
    assert sorted(template.count for template in mined(text).templates.values()) == [1, 1, 4]


def test_a_line_of_a_round_size_that_is_whole_stays_alone():
    """A prefix begins a line, whatever precedes it."""
    line = b"2026-11-03 04:12:00 INFO ".ljust(4096, b"x") + b"\n"
    assert [template.count for template in mined(line * 3 + b"2026-11-03 04:12:01 INFO done\n").templates.values()] == [
        3,
        1,
    ]


def test_the_runtime_says_whose_part_it_is():
    """The runtime's time is followed by stream and mark."""
    assert part_of(b"2026-11-03T04:12:00.1Z stdout P words") == (b"stdout", True)
    assert part_of(b"2026-11-03T04:12:00.1Z stderr F words") == (b"stderr", False)
    assert part_of(b"it wrote to stdout Peter said") == (b"", False)
