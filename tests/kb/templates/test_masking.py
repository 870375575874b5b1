"""Masking: what varies from run to run goes, what says something stays, and equal lines have equal ids."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kb.templates.masking import LineKind, fold, frame_of, shape_of, template_of, with_frame
from kb.templates.variables import masked


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("loaded 12 of 4096 shards in 3.25 s (1.5e-05)", "loaded <*> of <*> shards in <*> s (<*>)"),
        ("read 3.81GB at -12.5%", "read <*>GB at <*>"),
        ("peer 10.31.0.67:29500 closed", "peer <*> closed"),
        ("run 3f2504e0-4f89-11d3-9a0c-0305e82c3301 began", "run <*> began"),
        ("comm 0x6da3ef648ef7 commit e837ad3a5f", "comm <*> commit <*>"),
        ("GPU 0000:3d:00.0 fell off the bus", "GPU <*> fell off the bus"),
        ("saving to /gpfs/proj/run-7/step_100/model.pt", "saving to <*>"),
        ("copied to s3://bucket/run/7", "copied to <*>"),
        ("at torch/distributed/run.py:873", "at run.py:<*>"),
        ("host gpu-c046 and hgx-gy1-105.cluster.local and node0039", "host <*> and <*> and <*>"),
        ("sizes [1, 22, 333]", "sizes [<*>]"),
        ("KeyError: 'layers.3'", "KeyError: <*>"),
        ("{'loss': 1.25, 'epoch': 0.1}", "{'loss': <*>, 'epoch': <*>}"),
        ("loss is nan at 17 tokens/s", "loss is nan at <*> tokens/s"),
        ("don't stop, it can't wait", "don't stop, it can't wait"),
        ("torch.nn.Linear has   no bias", "torch.nn.Linear has no bias"),
        (" 45%|████▌     | 45/100 [00:12<00:15,  3.61it/s]", "<*>%|<*>| <*>/<*> [<*><<*>, <*>it/s]"),
        ("\x1b[32mready\x1b[0m after 3 s", "ready after <*> s"),
    ],
)
def test_variables_are_masked(line, text):
    """Numbers, ids, addresses, hosts, paths and quoted names become one sign; words, units and keys stay."""
    assert text == masked(fold(line.encode()))


@pytest.mark.parametrize(
    ("line", "level", "text"),
    [
        (
            "[rank3]: [2026-07-05 15:45:33,688] [WARNING] [amp.py:12:step] overflow",
            "warning",
            "[WARNING] [amp.py:<*>:step] overflow",
        ),
        ("E0917 13:40:25.314859 42131 api.py:1002] failed (exitcode: -9)", "error", "failed (exitcode: <*>)"),
        (
            '{"level": "warn", "time": "2026-10-22T10:42:14Z", "msg": "8 GB left", "component": "agent"}',
            "warning",
            "agent: <*> GB left",
        ),
        (
            't=2026-07-06T16:13:53+09:00 lvl=info rank=7 mod=setup msg="process up, pid 41656"',
            "info",
            "setup: process up, pid <*>",
        ),
        ("gpu-1:52788:53000 [0] NCCL INFO Using network IB", "info", "NCCL INFO Using network IB"),
        ("3: [10-20 21:22:17][ckpt][E] write failed", "error", "[ckpt][E] write failed"),
        (
            "Sep 08 23:13:19 ip-10-11-31-54 kernel: md: data-check of RAID array md0",
            None,
            "md: data-check of RAID array md<*>",
        ),
        ("plain words", None, "plain words"),
    ],
)
def test_prefixes_are_taken_off_and_levels_kept(line, level, text):
    """Who wrote a line and when is not part of a template; its level is."""
    template = shape_of(fold(line.encode()), dated=True).template
    assert template is not None
    assert (level, text) == (template.level, template.text)


@pytest.mark.parametrize(
    ("line", "rank", "step"),
    [
        ("[rank12]: iteration     1200/ 5000 | lm loss: 1.25E+00 |", "12", "1200"),
        (" 12: step: 40 loss: 1.5", "12", None),
        ("2026-09-17 13:40:19,542 INFO trainer: rank 3 | step 17/60 | loss 4.9692 | 163.2 ms", "3", "17"),
        ("15:35:37.528 ┃ rank 2 ┃ WARNING ┃ sample ignored", "2", None),
        ("2026-11-28 15:35:32.683\trank 1\tINFO\tpulse", "1", None),
        ('{"version": "1.1", "host": "node-a", "_rank": 7, "short_message": "pulse"}', "7", None),
        ('{"UNIT": "lm@rank12.service", "PRIORITY": "6", "MESSAGE": "    main()"}', "12", None),
        ('{"pod": "lm-rank3", "log": "main()"}', "3", None),
        ('{"path": "/ckpt/mp_rank3", "log": "main()"}', None, None),
        ("rank 3 of 8 was lost", None, None),
        ("iteration 100: validation loss 3.1", None, None),
        ("saving the checkpoint of step 300", None, None),
    ],
)
def test_ranks_and_steps_are_found_where_they_stand(line, rank, step):
    """The shape says which bytes are the rank, and which the step of an iteration line of training."""
    raw = line.encode()
    shape = shape_of(fold(raw))
    assert rank == (shape.rank and raw[slice(*shape.rank)].decode())
    if step is not None:
        assert step == (shape.step and raw[slice(*shape.step)].decode())


@pytest.mark.slow  # test_variables_are_masked
@given(st.text(max_size=300), st.text("0123456789", min_size=1, max_size=4))
def test_digits_do_not_matter(text, digits):
    """Lines that fold alike have one template, for any digits."""
    line = (text + digits).encode("utf-8", "surrogatepass").replace(b"\n", b" ")
    other = bytes(48 + (byte - 41) % 10 if 48 <= byte < 58 else byte for byte in line)
    assert shape_of(fold(line)).template == shape_of(fold(other)).template


@given(st.binary(max_size=600))
def test_any_bytes_have_a_template_or_none(line):
    """Nothing breaks the miner, and nothing that it says is long."""
    shape = shape_of(fold(line.replace(b"\n", b"")))
    assert shape.template is None or len(shape.template.text) <= 320


def test_noise_is_one_template():
    """Bytes that are not text do not fill a table."""
    first, second = (masked(bytes(range(128, 250))[::step]) for step in (1, -1))
    assert first == second == "<binary>"


def test_ids_do_not_change():
    """An id is a digest of version, level and text: other runs and other days have the same."""
    assert template_of("disk <*> is full", "error").id == "27e751e2a81b09af"
    assert template_of("disk <*> is full", "info").id != template_of("disk <*> is full", "error").id


def test_exceptions_bear_the_innermost_frame():
    """The same words from another function are another template."""
    template = shape_of(b"OSError: [Errno 00] no space").template
    assert template is not None
    frame = frame_of(b'  File "/srv/app/save3.py", line 12, in write')
    assert frame == "write (save<*>.py)"
    assert with_frame(template, frame).text == "OSError: [Errno <*>] no space [in write (save<*>.py)]"
    assert shape_of(b"OSError: [Errno 00] no space").kind is LineKind.EXCEPTION


@pytest.mark.parametrize(
    ("line", "level"),
    [
        (b"11/29/26 01:31:07.561 E mill[70] part 13 is older than its head", "error"),
        (b"01:16:25.507 [W] mill.gate: nobody answers", "warning"),
        (b"01:16:25.507 E2 is the gate", None),
        (b"01:16:25 A word", None),
    ],
)
def test_one_letter_behind_the_time_is_a_level(line: bytes, level: str | None) -> None:
    """As many loggers of compiled programs write it."""
    template = shape_of(fold(line)).template
    assert template is not None
    assert template.level == level
