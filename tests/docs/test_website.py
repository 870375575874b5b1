"""The sources of the documentation site: every page has its place, links that leave docs/ lead to copies, references are generated.

`make docs` builds the site itself and checks links between pages and to headings.
"""

from __future__ import annotations

import importlib.util
import re
import sys
import tomllib
from pathlib import Path

import pytest

from tests.support.paths import ROOT

MAKE = ROOT / "docs" / "make"


@pytest.fixture(scope="module")
def website():
    """The builder, a script beside the others of docs/make."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(MAKE)
        yield _loaded()
    sys.modules.pop("reference", None)


@pytest.fixture(scope="module")
def sources(website, tmp_path_factory):
    """What is put together for the generator; nobody changes it."""
    folder = tmp_path_factory.mktemp("site") / "docs"
    website.assemble(folder)
    return folder


def _loaded():
    spec = importlib.util.spec_from_file_location("website", MAKE / "website.py")
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    assert spec.loader is not None
    spec.loader.exec_module(module)
    return module


def in_navigation(items):
    """All pages that a navigation names."""
    for item in items:
        if isinstance(item, str):
            yield item
        else:
            for inner in item.values():
                yield from [inner] if isinstance(inner, str) else in_navigation(inner)


def test_every_page_is_in_the_navigation(website, sources):
    """A new page must be placed; a page that is gone must be removed. Only the pages of single rules are reached from their index."""
    pages = {
        path.relative_to(sources).as_posix()
        for pattern in ("*.md", "reference/*.md", "decisions/*.md", "rules/*.md")
        for path in sources.glob(pattern)
    }

    assert sorted(in_navigation(tomllib.loads(website.SETTINGS.read_text())["project"]["nav"])) == sorted(pages)


def test_a_link_out_of_the_folder_leads_to_a_copy(sources):
    """Files of the checkout that pages link to are part of the site; a folder becomes a list of its files."""
    text = (sources / "operations.md").read_text()

    assert "](files/deploy/systemd/signalbox.service)" in text
    assert "](files/deploy/container/index.md)" in text
    assert "[compose.yaml](compose.yaml)" in (sources / "files/deploy/container/index.md").read_text()
    assert "](evaluation.md)" in (sources / "benchmarks.md").read_text()  # ../docs/evaluation.md in bench/
    assert "](security.md)" in (sources / "architecture.md").read_text()


def test_a_link_that_leads_nowhere_is_named(website, tmp_path, monkeypatch):
    """The builder names the page and the link, for all of them at once."""
    (tmp_path / "x").mkdir()
    docs = tmp_path / "x" / "docs"
    docs.mkdir()
    for name in ("report.schema.json", "config.schema.json"):
        (docs / name).write_text((ROOT / "docs" / name).read_text())
    (docs / "one.md").write_text("# One\n\n[gone](../deploy/gone.yaml) and [outside](https://example.org)\n")
    (docs / "two.md").write_text("# Two\n\n[also gone](three.md)\n")
    monkeypatch.setattr(website, "DOCS", docs)
    monkeypatch.setattr(website, "ROOT", tmp_path / "x")
    monkeypatch.setattr(website, "ELSEWHERE", {})

    with pytest.raises(website.BrokenLinkError) as broken:
        website.assemble(tmp_path / "out")

    assert str(broken.value).splitlines() == [
        "docs/one.md: ../deploy/gone.yaml does not exist",
        "docs/two.md: three.md does not exist",
    ]


def test_the_reference_has_every_command_option_and_setting(sources):
    """They are read from the command line and the schemas, so nothing can be missing."""
    cli = (sources / "reference/cli.md").read_text()
    settings = (sources / "reference/configuration.md").read_text()
    report = (sources / "reference/report.md").read_text()

    assert "\n### incidents list\n" in cli
    assert "<code>--assignee WHO</code>" in cli
    assert "<code>deadline</code>" in settings
    assert "<code>fingerprint</code>" in report
    for page in (settings, report):
        anchors = set(re.findall(r"\{#([\w-]+)\}", page))
        assert set(re.findall(r"\]\(#([\w-]+)\)", page)) <= anchors


def test_the_readme_is_short_and_leads_to_the_pages():
    """What it is, a picture, the installation, then links: each leads to a file."""
    text = (ROOT / "README.md").read_text()

    assert len(text.splitlines()) <= 90
    links = [to for to in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", text) if "://" not in to]
    assert len(links) > 30
    assert [to for to in links if not (ROOT / to).exists()] == []


def test_the_generator_reads_the_folder_that_is_put_together(website):
    """The settings name the folders that the builder makes."""
    project = tomllib.loads(Path(website.SETTINGS).read_text())["project"]

    assert (project["docs_dir"], project["site_dir"]) == ("docs", "site")


def test_a_code_block_is_reached_by_a_keyboard(website):
    """Once, whether or not the theme marks it; code within a sentence is left alone."""
    page = '<pre><span></span><code class="x">a</code></pre><pre><code tabindex="0">b</code></pre><p><code>c</code></p>'
    assert website.reachable(page).count("tabindex") == 2
    assert '<code tabindex="0" class="x">' in website.reachable(page)
    assert "<p><code>c" in website.reachable(page)


def test_the_page_of_a_rule_has_its_section_at_the_left_and_explains_its_status(website):
    """Only the section of the reference is opened."""
    item = (
        '<li class="md-nav__item md-nav__item--nested">\n <input class="md-nav__toggle md-toggle " type="checkbox" id="__nav_{}" >\n'
        '<label for="x">\n<span class="md-ellipsis">\n {}\n</span></label>'
    )
    page = website.beside_reference(item.format(4, "Write rules") + item.format(5, "Reference"))
    assert page.count("md-nav__item--active") == 1
    assert page.index("Write rules") < page.index("md-nav__item--active") < page.index("Reference")
    assert 'id="__nav_5" checked>' in page
    assert website.explained("| Role | x |\n| Status | stable |\n") == (
        "| Role | x |\n| Status | stable ([meaning](../../rule-format.md#status)) |\n"
    )
