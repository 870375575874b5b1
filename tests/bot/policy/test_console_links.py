"""Links to a site's consoles: filled in, escaped, and only to the host that the configuration names."""

from __future__ import annotations

from dataclasses import replace
from urllib.parse import parse_qs, urlsplit

import pytest
from markupsafe import escape

from bot.config.file import ConfigError, load
from bot.pages.incident import IncidentStatus, incident_page
from bot.policy.console_links import PLACEHOLDERS, ConsoleLink, console_links, template_problem
from bot.render.terminal import plain
from bot.render.text_page import Reading
from bot.slack.messages.answer import answer_message
from bot.slack.messages.card import Card
from kb.model import Attempt
from tests.support.block_limits import faults_of_message
from tests.support.bot_samples import FALLEN_GPU
from tests.support.slack_reading import read

REPORT = replace(
    FALLEN_GPU,
    job=replace(FALLEN_GPU.job, attempts=(Attempt(1, scheduled=1_767_225_600.0, stopped=1_767_229_200.5),)),
)
GRAFANA = "https://grafana.example/d/gpu?var-job={job}&var-node={node}&from={start_ms}&to={end_ms}"


def test_a_template_is_filled_in():
    """With the job, the suspected node and its times."""
    assert console_links({"Grafana": GRAFANA}, REPORT, "alpha") == (
        ConsoleLink(
            "Grafana",
            "https://grafana.example/d/gpu?var-job=47110&var-node=gpu-017&from=1767225600000&to=1767229200500",
        ),
    )


def test_every_placeholder_has_a_value():
    """In each of its forms."""
    template = "https://x.example/?" + "&".join(f"{name}={{{name}}}" for name in PLACEHOLDERS)
    (found,) = console_links({"all": template}, REPORT, "alpha")
    told = {key: value for key, [value] in parse_qs(urlsplit(found.url).query).items()}
    assert told.keys() == PLACEHOLDERS.keys()
    assert (told["start_iso"], told["end_s"], told["cluster"]) == ("2026-01-01T00:00:00Z", "1767229200", "alpha")


@pytest.mark.parametrize(
    "name",
    ["../../admin", "a&to=evil", "a#b", "a?b", "https://evil.example/", "a b", "é\ud800", "{node}", "%2f", "a\r\nb"],
)
def test_no_name_leads_elsewhere(name):
    """Names come from logs and schedulers; each stays one value of the address."""
    report = replace(REPORT, job=replace(REPORT.job, id=name))
    (found,) = console_links({"x": "https://host.example/jobs/{job}?q={job}"}, report, None)
    parts = urlsplit(found.url)
    assert (parts.scheme, parts.netloc, parts.fragment) == ("https", "host.example", "")
    assert parts.path.count("/") == 2
    assert list(parse_qs(parts.query)) == ["q"]
    assert found.url.isascii()
    assert found.url.isprintable()


def test_a_link_with_an_unknown_value_is_left_out():
    """A dashboard of no job, or of the year 1970, helps nobody."""
    report = replace(REPORT, job=replace(REPORT.job, id=None, attempts=()), window=(None, None), diagnoses=())
    links = {
        "job": "https://x.example/{job}",
        "time": "https://x.example/?from={start_ms}",
        "fixed": "https://x.example/",
    }
    assert [item.name for item in console_links(links, report, None)] == ["fixed"]


def test_times_without_a_zone_are_not_used():
    """They cannot be compared with those of a console."""
    report = replace(REPORT, job=replace(REPORT.job, attempts=()), time_zone="unknown")
    assert console_links({"x": "https://x.example/?from={start_ms}"}, report, None) == ()
    assert console_links({"x": "https://x.example/?from={start_ms}"}, replace(report, time_zone="utc"), None)


@pytest.mark.parametrize(
    ("template", "problem"),
    [
        ("http://grafana.example/{job}", "begins with https://"),
        ("javascript:alert(1)", "begins with https://"),
        ("https:///{job}", "begins with https://"),
        ("https://{job}.example/", "host contains no placeholder"),
        ("https://user:word@grafana.example/", "host contains no placeholder"),
        ("https://grafana.example/{jobs}", "there is no {jobs}"),
        ('https://grafana.example/?left={"from":1}', "none of space, quotes"),
        ("https://grafana.example/?left={", "%7B"),
        ("https://grafana.example/ x", "none of space"),
        ("https://[grafana/", "no address"),
    ],
)
def test_a_wrong_template_is_explained(template, problem):
    """When the configuration is read, at its line."""
    assert problem in template_problem("x", template)
    text = f"version: 1\nclusters:\n  alpha:\n    links:\n      x: '{template}'\n"
    with pytest.raises(ConfigError) as wrong:
        load(text, path=None)  # type: ignore[arg-type]
    assert wrong.value.faults[0].line == 5


def test_links_belong_to_a_cluster_of_a_tenant():
    """Nobody gets those of another tenant."""
    text = f"version: 1\nclusters:\n  alpha:\n    tenant: red\n    links: {{Grafana: '{GRAFANA}'}}\n"
    config = load(text, path=None)  # type: ignore[arg-type]
    assert config.links_of("red", "alpha") == {"Grafana": GRAFANA}
    assert (config.links_of("blue", "alpha"), config.links_of("red", None)) == ({}, {})


def test_the_links_are_shown_in_slack_on_the_page_and_in_the_terminal():
    """Each by its name, with the whole address."""
    links = console_links({"Grafana <x>": GRAFANA}, REPORT, "alpha")
    message = answer_message(REPORT, Card("h", consoles=links))
    assert faults_of_message(message.text, message.blocks) == []
    assert f"Grafana <x> <{links[0].url}>" in read(message.blocks)
    page = incident_page(REPORT, about=IncidentStatus(consoles=links))
    assert f'href="{escape(links[0].url)}"' in page
    assert "Grafana &lt;x&gt;</a>" in page
    shown = plain(REPORT, reading=Reading(consoles=tuple((item.name, item.url) for item in links)))
    assert f"Grafana <x>: {links[0].url}\n" in shown
