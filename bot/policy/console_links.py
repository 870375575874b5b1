"""Links from an answer to a site's own consoles: dashboards, logs, experiment trackers, schedulers. Pure.

A template is an https address with placeholders: `https://grafana.example/d/gpu?var-job={job}&from={start_ms}&to={end_ms}`. Every
value is escaped for an address, so that no name can lead elsewhere. A link whose values are not all known is left out.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from urllib.parse import quote, urlsplit

from kb.model import Attempt
from kb.regex.lazy import lazy_compile
from kb.report import Report

MOST = 10  # links of a cluster
LONGEST = 2000  # characters of a template or an address
LONGEST_NAME = 40
PLACEHOLDERS: Mapping[str, str] = {
    "job": "the id of the job, as its scheduler shows it",
    "name": "the name of the job",
    "user": "the owner of the job",
    "cluster": "the name of the cluster in this configuration",
    "node": "the first node that the first diagnosis suspects",
    "start_ms": "the start of the job, or of its logs, in milliseconds since the epoch",
    "end_ms": "the end of the job, or of its logs, in milliseconds since the epoch",
    "start_s": "the same in seconds",
    "end_s": "the same in seconds",
    "start_iso": "the same as 2026-11-23T10:00:00Z",
    "end_iso": "the same as 2026-11-23T10:00:00Z",
}
_PLACEHOLDER = lazy_compile(r"\{([^{}]*)\}")
_YEAR_3000 = 32_503_680_000.0


@dataclass(frozen=True, slots=True)
class ConsoleLink:
    """A link to a console: its name in the configuration, and the address."""

    name: str
    url: str


def template_problem(name: str, template: str) -> str:
    """Return what is wrong with a template, in words; empty if nothing is."""
    if not name.isprintable() or not 0 < len(name) <= LONGEST_NAME:
        return f"the name of a link has 1 to {LONGEST_NAME} printable characters"
    return _text_problem(template) or _address_problem(template)


def _text_problem(template: str) -> str:
    if len(template) > LONGEST or not template.isprintable() or any(item in template for item in ' "<>\\`|^'):
        return f"a link has at most {LONGEST} characters and none of space, quotes, <, >, \\, `, | and ^: encode them, as %20"
    for unknown in _PLACEHOLDER.findall(template):
        if unknown not in PLACEHOLDERS:
            return f"there is no {{{unknown[:40]}}}; write one of {', '.join(f'{{{item}}}' for item in PLACEHOLDERS)}"
    if set("{}") & set(_PLACEHOLDER.sub("", template)):
        return "write a brace that is not part of a placeholder as %7B or %7D"
    return ""


def _address_problem(template: str) -> str:
    try:
        parts = urlsplit(template)
        host = parts.hostname
    except ValueError:
        return "this is no address"
    if parts.scheme != "https" or not host:
        return "a link begins with https:// and a host"
    if "{" in parts.netloc or "@" in parts.netloc:
        return "a host contains no placeholder, user or password"
    return ""


def console_links(templates: Mapping[str, str], report: Report, cluster: str | None) -> tuple[ConsoleLink, ...]:
    """Return the links of a report, in the order of the configuration. `templates`: name → template of its cluster."""
    values = _values(report, cluster)
    found = []
    for name, template in list(templates.items())[:MOST]:
        wanted = _PLACEHOLDER.findall(template)
        if template_problem(name, template) or any(not values.get(item) for item in wanted):
            continue
        url = _PLACEHOLDER.sub(lambda hit: quote(values[hit[1]], safe=""), template)
        if len(url) <= LONGEST:
            found.append(ConsoleLink(name, url))
    return tuple(found)


def _values(report: Report, cluster: str | None) -> dict[str, str]:
    job, (first, last) = report.job, report.window
    nodes = report.diagnoses[0].nodes if report.diagnoses else ()
    values = {
        "job": job.id or "",
        "name": job.name or "",
        "user": job.owner or "",
        "cluster": cluster or "",
        "node": nodes[0] if nodes else "",
    }
    known = report.time_zone == "utc"  # the times of logs without a zone cannot be compared with those of a console
    last_attempt = job.attempts[-1] if job.attempts else Attempt(1)
    begun = (last_attempt.scheduled, last_attempt.initialised, last_attempt.first_iterated, first if known else None)
    start = next((time for time in begun if time is not None), None)
    end = last_attempt.stopped if last_attempt.stopped is not None else last if known else None
    for name, time in (("start", start), ("end", end)):
        if time is not None and math.isfinite(time) and 0 <= time < _YEAR_3000:
            values |= {
                f"{name}_ms": str(int(time * 1000)),
                f"{name}_s": str(int(time)),
                f"{name}_iso": f"{datetime.fromtimestamp(time, UTC):%Y-%m-%dT%H:%M:%SZ}",
            }
    return {key: value.encode("utf-8", "replace").decode() for key, value in values.items()}
