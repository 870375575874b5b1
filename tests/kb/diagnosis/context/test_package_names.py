"""The package that a message names."""

from __future__ import annotations

import pytest

from kb.diagnosis.context.package_names import package_of


@pytest.mark.parametrize(
    ("lines", "package"),
    [
        (
            ("ValueError: this needs a map: it requires `fastmap`. You can install it with `pip install fastmap`",),
            "fastmap",
        ),
        (("ImportError: This modeling file requires the 'rope_x' package",), "rope_x"),
        (("ImportError: PairLoader requires the pairs library but it was not found in your environment",), "pairs"),
        (("Please run: pip install -U --user pairs>=1.2",), "pairs"),
        (("DistributionNotFound: The 'pairs' distribution was not found",), "pairs"),
        (("pip install pairs", "pip install maps"), None),
        (("pip install git+https://example.org/x; requires the right package",), None),
        (("numpy is not installed; pip install $(reboot)",), "numpy"),
        (("ImportError: cannot import name 'pad' from 'pairs.nn' (/opt/env/lib/site-packages/pairs/nn.py)",), "pairs"),
        (("ImportError: cannot import name 'x' from 'yaml' (C:\\env\\site-packages\\yaml\\__init__.py)",), "PyYAML"),
        (("ImportError: cannot import name 'pad' from 'utils' (/srv/fit/utils.py)",), None),
        ((), None),
    ],
)
def test_the_package_that_a_message_names(lines, package):
    """Where it says what to install, or what is required; none where lines name several, or what is no plain name."""
    assert package_of(lines) == package
