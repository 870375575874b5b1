"""Settings that logs state."""

from __future__ import annotations

import pytest

from kb.facts.stated_settings import stated_setting


@pytest.mark.parametrize(
    ("name", "lines", "told"),
    [
        ("batch_setting", ["  micro_batch_size ........ 4"], "micro_batch_size 4"),
        ("batch_setting", ["sft.py --per_device_train_batch_size 8", "micro_batch_size: 8"], "micro_batch_size 8"),
        ("batch_setting", ["micro_batch_size: 8", "micro_batch_size: 4"], ""),
        ("batch_setting", ["global_batch_size: 512"], ""),
        ("length_setting", ['"max_seq_length": 4096,'], "max_seq_length 4096"),
        ("length_setting", ["seq_length 4096.5"], ""),
    ],
)
def test_one_value_is_told(name, lines, told):
    """A setting with its value; nothing where logs state different values, or another setting."""
    assert stated_setting(name, lines) == told
