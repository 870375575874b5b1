"""What state the run was in and what the reader must decide: phase, verdict, progress, decision."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from kb.evidence import Facts
from kb.model import Phase, Structure, Verdict
from kb.ranking import Ranked, band
from kb.report import Advice, Decision, Exclusion, Progress, Suspect
from kb.rule import Rulebook
from kb.summary import tail_lines

LAST_LINES = 4
LAST_LINES_OF_A_RUN = 3  # behind iteration lines an error must be the very last thing
_ERROR = re.compile(
    r"\b(?:ERROR|FATAL|CRITICAL|Fatal|fatal error|NCCL WARN|Aborted|aborting|Killed|panic)\b|\b[Ee]rror:|\berror code|\w(?:Error|Exception)\b"
    r"|\b(?:failed|refused|denied|unreachable|not permitted|Cannot|cannot|could not|Could not|Unable to|unable to|timed out|terminated|catastrophic|unhandled|lost connection|aborted)\b"
)
_HARMLESS = re.compile(
    r"(?i)\bwarn(?:ing)?\b(?!.*NCCL WARN)|\bINFO\b|\bDEBUG\b|deprecat|\b0 (?:errors?|failed|failures)|no errors?\b|without errors?|\bretry|falling back|fallback|ignor|skipp|\[\s*ok\s*\]|optional|resolved|\bcorrected\b|sub-?optimal|succeeded|\bdisabl(?:ed|ing)\b|\binstead\b|already been registered|\dit/s|s/it\b|\bW[\d ]"
)
STOPS = frozenset({"preempted", "time_limit", "cancelled"})
_NOTICES = frozenset({"SIGUSR1", "SIGUSR2", "SIGCHLD", "SIGCONT", "SIGWINCH"})  # tell a program something, end nothing
_CALM = frozenset({"KeyboardInterrupt", "SystemExit", "StopIteration", "GeneratorExit"})


def failure_signs(facts: Facts) -> list[tuple[int, Structure]]:
    """Structures that say that something ended badly and after which the run did not go on."""
    signs = []
    for kind in (
        "exception",
        "elastic_failure",
        "elastic_exit",
        "launcher_exit",
        "native_crash",
        "oom_kill",
        "signal",
        "slurm_end",
        "watchdog",
    ):
        for index, one in facts.structures(kind):
            if facts.survived(index, one.offset, one.time) or not _bad(one):
                continue
            signs.append((index, one))
    return signs


def last_words(facts: Facts) -> list[tuple[int, Structure]]:
    """Lines of error at the very end of streams that neither went on nor ended well: something failed, unknown what."""
    found = []
    for index, stream in enumerate(facts.streams):
        summary = stream.summary
        if stream.completed is not None:
            continue
        lines = [(at, line) for at, line in tail_lines(summary) if line.strip()]
        after = stream.points[-1].offset if stream.points else -1
        for at, line in lines[-LAST_LINES if not stream.points else -LAST_LINES_OF_A_RUN :]:
            if at > after and not stream.went_on(at) and _ERROR.search(line) and not _HARMLESS.search(line):
                found.append((index, Structure("error_line", at, at + len(line), line[:512])))
    return found


def _bad(one: Structure) -> bool:
    if one.kind == "exception":
        return one.fields.get("type") not in _CALM
    if one.kind == "signal":
        return one.fields.get("signal") not in _NOTICES
    if one.kind == "launcher_exit":
        return str(one.fields.get("exitcode") or "") not in ("", "0") or bool(one.fields.get("signal"))
    return True


def progress(facts: Facts) -> Progress:
    """How far the run came, and its last complete checkpoint."""
    last = facts.last_point()
    times = [s.summary.series.last.time for s in facts.streams if s.summary.series.last and s.summary.series.last.time]
    ends = [s.stage(s.summary.size) for s in facts.streams if s.summary.ref.kind == "job"]
    total = max((p.total for s in facts.streams for p in s.points[-1:] if p.total), default=None)
    return Progress(
        last_iteration=last.step if last else None,
        last_progress=max(times, default=None),
        last_checkpoint=_last_checkpoint(facts),
        stage=facts.end[0] if facts.end else next((one for one in ends if one not in (None, "teardown")), None),
        total_iterations=total,
    )


def _last_checkpoint(facts: Facts) -> int | None:
    """The step of the last checkpoint that is known to be complete: its end was logged, or steps went on after its begin."""
    done: list[int] = []
    for index, one in facts.structures("checkpoint"):
        event, step = one.fields.get("event"), one.fields.get("iteration")
        stream = facts.streams[index]
        if event not in ("save_begin", "save_end"):
            continue
        number = _integer(step) if step is not None else stream.iteration(one.offset)
        if number is not None and (event == "save_end" or stream.steps_after(one.offset) >= 2):
            done.append(number)
    return max(done, default=None)


def _integer(value: object) -> int | None:
    try:
        return int(str(value))
    except ValueError:
        return None


def judge(ranked: Sequence[Ranked], facts: Facts, signs: Sequence[object]) -> Verdict:
    """One of the four verdicts."""
    strong = [one for one in ranked if one.best.role != "context" and band(one.confidence) != "weak"]
    if strong or (ranked and signs):
        return "fault"
    if signs:
        return "no_match"
    if any(facts.streams[i].points or facts.streams[i].completed is not None for i in range(len(facts.streams))):
        return "no_fault"
    return "no_fault" if facts.text_bytes() >= 200 else "insufficient_evidence"


def phase(verdict: Verdict, ranked: Sequence[Ranked], facts: Facts) -> Phase:
    """The state of the run at the end of what was seen."""
    if verdict == "insufficient_evidence":
        return "unknown"
    if verdict == "no_fault":
        done = any(stream.completed is not None for stream in facts.streams)
        return "completed" if done else "running" if facts.last_point() else "unknown"
    if verdict == "fault" and ranked:
        fault = ranked[0].best.fault
        if fault.id in STOPS:
            return "stopped"
        if fault.outlives:
            return "degraded"
    return "failed"


def decide(rulebook: Rulebook, ranked: Sequence[Ranked], suspects: Iterable[Suspect], done: Progress) -> Decision:
    """Requeue or not, without whom, from where, how much is lost, and who owns it."""
    lost = None
    if done.last_iteration is not None and done.last_checkpoint is not None:
        lost = max(0, done.last_iteration - done.last_checkpoint)
    if not ranked:
        return Decision(from_checkpoint=done.last_checkpoint, steps_lost=lost)
    best = ranked[0].best
    advice: Advice = best.fault.advice  # type: ignore[assignment]
    barred = tuple(
        Exclusion(
            one.node,
            "cluster" if best.fault.domain == "hardware" else "job",
            best.row.title if best.row else best.rule.title,
        )
        for one in suspects
        if one.node and one.kind in ("rank", "node", "gpu") and best.fault.domain in ("hardware", "network")
    )
    if advice == "requeue_without" and not barred:
        why = "the node at fault is not named in what was seen"
    else:
        why = best.fault.title
    owner = best.rule.owner or rulebook.owners.get(best.fault.domain, "none")
    unique = tuple({one.node: one for one in barred}.values())
    return Decision(advice, unique if advice == "requeue_without" else (), done.last_checkpoint, lost, None, owner, why)
