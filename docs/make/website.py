"""Builds the documentation site in build/docs/site: `make docs`, which fails where a link or an anchor leads nowhere.

The generator, Zensical, reads one folder. Here it is put together: the pages of docs/, pages that are generated
(docs/make/reference.py), pages from elsewhere in the checkout, and the files that pages link to.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
DOCS = ROOT / "docs"
SETTINGS = DOCS / "make" / "zensical.toml"
THEME = DOCS / "make" / "theme"

# pages that lie elsewhere in the checkout, because people look for them there
ELSEWHERE = {
    "SECURITY.md": "security.md",
    "CHANGELOG.md": "changelog.md",
    "bench/README.md": "benchmarks.md",
    "bench/catalogue/README.md": "catalogue.md",
}
LEFT_OUT = ("make",)  # the generators themselves
LINK = re.compile(r"(?P<text>\]\()(?P<to>[^)\s#]+)(?P<anchor>#[^)\s]*)?\)")
CODE_BLOCK = re.compile(r"(?P<block><pre[^>]*>(?:<span></span>)?)<code(?![^>]*\btabindex=)(?P<more>[^>]*)>")
SECTION = re.compile(
    r'<li class="md-nav__item md-nav__item--nested">(?P<input>\s*<input class="md-nav__toggle md-toggle " type="checkbox" id="__nav_\d+")'
    r" ?>(?=\s*<label[^>]*>\s*<span[^>]*>\s*Reference\s*</span>)"
)
STATUS = re.compile(r"^\| Status \| \w+ \|$", re.MULTILINE)
OUTSIDE = re.compile(r"[a-z][a-z0-9+.-]*:", re.IGNORECASE)


class BrokenLinkError(Exception):
    """A page links to something that the checkout does not have."""


def assemble(target: Path) -> None:
    """Put the sources of the site together in `target`. Raises BrokenLinkError, with all broken links at once."""
    import reference  # noqa: PLC0415 - imports the command line; beside this file

    shutil.copytree(DOCS, target, ignore=lambda folder, _: LEFT_OUT if Path(folder) == DOCS else ())
    shutil.copytree(THEME, target / THEME.name)
    for origin, page in ELSEWHERE.items():
        shutil.copy(ROOT / origin, target / page)
    for page, text in reference.pages().items():
        (target / page).parent.mkdir(parents=True, exist_ok=True)
        (target / page).write_text(text, "utf-8")
    for rule in (target / "rules").glob("*/*.md"):
        rule.write_text(explained(rule.read_text("utf-8")), "utf-8")
    broken = [fault for page in _handwritten(target) for fault in _lead_inside(target, page)]
    if broken:
        raise BrokenLinkError("\n".join(broken))


def _handwritten(target: Path) -> Iterator[Path]:
    """The pages whose links can lead out of docs/."""
    pages = [*target.glob("*.md"), *target.glob("decisions/*.md")]
    return iter(sorted(pages))


def _lead_inside(target: Path, page: Path) -> Iterator[str]:
    """Let the links of a page that lead out of docs/ lead to copies. Yields the links that lead nowhere."""
    places = {page: origin for origin, page in ELSEWHERE.items()}
    name = page.relative_to(target).as_posix()
    home = (ROOT / places[name]).parent if name in places else (DOCS / name).parent
    faults: list[str] = []

    def moved(link: re.Match[str]) -> str:
        to, anchor = link["to"], link["anchor"] or ""
        if OUTSIDE.match(to):
            return link[0]
        if (page.parent / to).is_file():  # pages that are generated, too; written without a way through other folders
            return f"{link['text']}{_relative((page.parent / to).resolve(), page.resolve())}{anchor})"
        there = (home / to).resolve()
        if not there.is_relative_to(ROOT) or not there.exists():
            faults.append(f"{home.relative_to(ROOT)}/{Path(name).name}: {to} does not exist")
            return link[0]
        return f"{link['text']}{_relative(_copied(target, there), page)}{anchor})"

    page.write_text(LINK.sub(moved, page.read_text("utf-8")), "utf-8")
    yield from faults


def _copied(target: Path, there: Path) -> Path:
    """The place of a file or folder of the checkout in the site, copied there if it is not part of docs/."""
    inside = there.relative_to(ROOT).as_posix()
    if inside in ELSEWHERE:
        return target / ELSEWHERE[inside]
    if there == ROOT / "README.md":
        return target / "index.md"
    if there.is_relative_to(DOCS) and there.is_file():
        return target / there.relative_to(DOCS)
    if there.is_dir():
        return _listing(target, there)
    copy = target / "files" / inside
    copy.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(there, copy)
    return copy


def _listing(target: Path, folder: Path) -> Path:
    """A page that lists the files of a folder, or the page that the folder has."""
    if folder.is_relative_to(DOCS):
        index = target / folder.relative_to(DOCS) / "README.md"
        if index.exists():
            return index
    page = target / "files" / folder.relative_to(ROOT) / "index.md"
    page.parent.mkdir(parents=True, exist_ok=True)
    lines = [f"# {folder.relative_to(ROOT)}", ""]
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        copy = page.parent / path.relative_to(folder).as_posix().replace(".github", "github").replace(
            ".gitlab", "gitlab"
        )
        copy.parent.mkdir(parents=True, exist_ok=True)
        is_page = folder.is_relative_to(DOCS) and path.suffix == ".md"
        goal = target / path.relative_to(DOCS) if is_page else copy
        if not is_page:
            shutil.copy(path, copy)
        lines.append(f"- [{path.relative_to(folder)}]({_relative(goal, page)})")
    page.write_text("\n".join(lines) + "\n", "utf-8")
    return page


def reachable(page: str) -> str:
    """A page in which a keyboard reaches each code block, for it may scroll; the theme's script does so only after a while."""
    return CODE_BLOCK.sub(r'\g<block><code tabindex="0"\g<more>>', page)


def beside_reference(page: str) -> str:
    """A page of a rule, which the navigation does not list, with the pages of the section that its list is in at its left."""
    active = '<li class="md-nav__item md-nav__item--active md-nav__item--section md-nav__item--nested">'
    return SECTION.sub(rf"{active}\g<input> checked>", page)


def explained(page: str) -> str:
    """The source of a rule's page with the meaning of its status."""
    return STATUS.sub(lambda found: f"{found[0].rstrip(' |')} ([meaning](../../rule-format.md#status)) |", page)


def _relative(path: Path, page: Path) -> str:
    return Path(os.path.relpath(path, page.parent)).as_posix()


def main() -> int:
    """Assemble and build. Returns the exit status of the generator, 1 for a link that leads nowhere."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "docs", help="folder to build in; it is emptied")
    out: Path = parser.parse_args().out
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    shutil.copy(SETTINGS, out / "zensical.toml")
    try:
        assemble(out / "docs")
    except BrokenLinkError as broken:
        print(broken, file=sys.stderr)  # noqa: T201 - what a person reads
        return 1
    beside = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    generator = shutil.which("zensical", path=beside)
    if generator is None:
        print("zensical is not installed: requirements-dev.lock has it", file=sys.stderr)  # noqa: T201
        return 1
    done = subprocess.run([generator, "build", "--strict"], cwd=out, capture_output=True, text=True, check=False)  # noqa: S603
    if done.returncode:
        print(done.stdout, done.stderr, sep="\n", file=sys.stderr)  # noqa: T201
    else:
        for page in sorted((out / "site").rglob("*.html")):
            text = reachable(page.read_text("utf-8"))
            page.write_text(beside_reference(text) if page.match("site/rules/*/*/*") else text, "utf-8")
        print(f"{out / 'site' / 'index.html'}")  # noqa: T201
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
