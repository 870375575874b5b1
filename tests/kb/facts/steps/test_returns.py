"""Losses that follow the returns of episodes."""

from __future__ import annotations

import pytest

from kb.facts.steps.returns import follows_returns


@pytest.mark.parametrize(
    ("form", "expected"),
    [
        ("[step={0}] episode={0}.0 return=-4{0}.7 length=20 loss=8{0}.5 value_loss=16{0}.1", True),
        ("episode {0}: reward 1{0}.5, critic_loss 0.{0}", True),
        ("| ep_rew_mean | 1{0} | loss | 0.{0} |", True),
        ("step {0} loss 2.{0} lr 1e-4", False),
        ("step {0} loss 2.{0} reward/mean 0.{0} kl 0.1", False),  # a language model has no episodes
        ("episode {0} of the corpus: loss 2.{0}", False),
    ],
)
def test_a_loss_beside_the_return_of_episodes(form: str, expected: bool) -> None:
    """Episode, return and loss are in the same line, and in several."""
    said = [(100 * at, form.format(at)) for at in range(4)]
    assert follows_returns(said) == expected
    assert not follows_returns(said[:2])
