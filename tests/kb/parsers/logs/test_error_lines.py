"""The content of an error line, whatever its prefix."""

from __future__ import annotations

import pytest

from kb.parsers.logs.error_lines import error_level, message_of

BAR = "47%|\u2588\u2588\u2588\u258b     | 28/60 [00:25<00:10,  3.05it/s, lr=0.00015, loss=3.04]"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (f"{BAR}11/22/2026 21:26:08 - CRITICAL - trainer - census mismatch", "census mismatch"),
        (f"Epoch 2:  {BAR} lease was refused", "lease was refused"),
        ('{"level": "error", "message": "lease was refused"}', "lease was refused"),
        ("[rank3]: lease was refused", "lease was refused"),
        (BAR, BAR),
        ("50%| of the shards are | gone", "50%| of the shards are | gone"),
    ],
)
def test_the_message_stands_alone(line, said):
    """Prefixes and a bar that was drawn on the same line go; a bar alone, and bars of prose, stay."""
    assert message_of(line).endswith(said)
    assert said == BAR or "it/s" not in message_of(line)


@pytest.mark.parametrize(
    ("line", "level"),
    [
        (b"fatal: not a git repository (or any of the parent directories): .git", None),
        (b"fatal: unable to access the mirror", "fatal"),
    ],
)
def test_git_without_a_repository_is_no_trouble(line, level):
    """Programs that print their version ask Git for it, and go on without."""
    assert error_level(line) == level
