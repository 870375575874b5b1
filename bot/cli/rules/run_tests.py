"""`signalbox rules test`: what rules match in a log, and why a test of a rule fails."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import typer

from bot.authoring.selftest import UNSPOKEN, RuleTestResult, findings_in, pasted, streams_at
from bot.cli.console import say
from bot.render.text_format import shown
from bot.rulebase.loader import Knowledge
from kb.rulebase.rule import Rule


def match_log(known: Knowledge, source: str, chosen: Sequence[Rule]) -> None:
    """Print which pattern matches where, on pasted text (`-`) or a file. Exits 3 if nothing can be read."""
    summaries, gaps = pasted(known, sys.stdin.buffer) if source == "-" else streams_at(known, Path(source))
    for gap in gaps:
        say(f"signalbox: {shown(f'{gap.source}: {gap.reason}')}", err=True)
    if not summaries:
        raise typer.Exit(3)
    wanted = {rule.id for rule in chosen}
    heard = [item for item in findings_in(known, summaries) if item.rule.id in wanted]
    for finding in heard:
        say(f"{finding.rule.id} → {finding.fault.id} ({finding.role})")
        for signal in finding.signals[:5]:
            say(f"    {signal.key.split('#')[1]} at byte {signal.offset}: {signal.line[:160]!r}")
    if not heard:
        say("no rule matches")


def unspoken_among(chosen: Sequence[Rule]) -> bool:
    """Whether some of the rules that a person named are drafts or shadow rules, which fire nowhere; says that they are tested all the same."""
    quiet = [rule for rule in chosen if rule.status in UNSPOKEN]
    for rule in quiet:
        say(f"{rule.id} is tested as if active: its status is {rule.status}, so it never fires", err=True)
    return bool(quiet)


def failure_text(outcome: RuleTestResult) -> str:
    """Which test of a rule failed, and which rules matched its log."""
    wanted = "should match but does not" if outcome.test.speaks else "should not match but does"
    heard = ", ".join(dict.fromkeys(finding.rule.id for finding in outcome.heard)) or "no rule"
    return f"{outcome.test.path}: {outcome.test.rule} {wanted} (matched: {heard})"
