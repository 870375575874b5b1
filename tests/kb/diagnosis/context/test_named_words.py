"""What a message names: settings, options, variables, and shapes."""

from __future__ import annotations

import pytest

from kb.diagnosis.context.named_words import message_names, message_shapes


@pytest.mark.parametrize(
    ("message", "names"),
    [
        ("Unknown optimizer: adamww", "adamww"),
        ("'Non-existent config key: MODEL.NECK'", "MODEL.NECK"),
        ("Environment HopperX doesn't exist. Did you mean: `Hopper`?", ""),
        ("Unknown layer: 'GatedMix'. Please use a `custom_scope`", "GatedMix"),
        ("a model loaded with `device_map='auto'` cannot be trained", "device_map='auto'"),
        ("--save_best requires both strategies to match:\n- strategy: steps", "--save_best"),
        ('--keep_best needs equal strategies, except when --save_strategy="best"', "--keep_best and --save_strategy"),
        ("Expected 64 of '*_optim.pt' but found 56 files", "*_optim.pt"),
        ("environment variable MASTER_ADDR expected, but not set", "MASTER_ADDR"),
        ("Precision 'fp7' is invalid. Allowed values: ('bf16', 'fp32')", "fp7"),
        ("total_size (32) does not match num_processes (16).", "total_size and num_processes"),
        ("'NoneType' object is not callable", ""),
        ("a_b, c_d, e_f and g_h must agree", ""),
        ("division by zero", ""),
    ],
)
def test_names_are_what_is_at_fault(message, names):
    """Quotes and options, then what stands behind a colon, then variables; not what is allowed, and no long lists."""
    assert message_names(message) == names


@pytest.mark.parametrize(
    ("message", "shapes"),
    [
        ("mat1 and mat2 shapes cannot be multiplied (4096x1152 and 1024x256)", "4096x1152 and 1024x256"),
        ("weight of size [96, 4, 3, 3], expected input[8, 3, 256, 256]", "[96, 4, 3, 3] and [8, 3, 256, 256]"),
        ("expected shape=(None, 224, 3), found shape=(None, 32, 3)", "(None, 224, 3) and (None, 32, 3)"),
        ("The size of tensor a (4) must match the size of tensor b (2) at dimension 0", "4 and 2"),
        ("got shape [8]", ""),
        ("nothing fits", ""),
    ],
)
def test_shapes_that_do_not_fit(message, shapes):
    """Two to four shapes, or else two sizes."""
    assert message_shapes(message) == shapes
