"""Reads the sources of public projects and writes the catalogue of their error sites.

    python bench/catalogue/harvest.py SOURCES                     # one folder per project, named as in areas.yaml
    python bench/catalogue/harvest.py --only nccl,slurm SOURCES   # counts of these projects; nothing is written
    python bench/catalogue/harvest.py --batches DIR SOURCES       # also the batches that readers label

SOURCES/VERSIONS names the version of each project: "project<TAB>version<TAB>origin<TAB>licence" a line. The sources are not
part of this repository; sites.tsv holds facts alone: place, type and telling words. The same sources give the same bytes.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, Final

import yaml

HERE: Final = Path(__file__).parent
sys.path[:0] = [str(HERE.parent.parent)]
from bench.catalogue.native_sites import c_sites, go_sites, rust_sites, shell_sites  # noqa: E402 - the path comes first
from bench.catalogue.python_sites import python_sites  # noqa: E402
from bench.catalogue.site_facts import Site  # noqa: E402

READERS: Final[Mapping[str, Callable[[str, str], Iterator[Site]]]] = {
    ".py": python_sites,
    ".go": go_sites,
    ".rs": rust_sites,
    ".sh": shell_sites,
    ".in": shell_sites,
    **dict.fromkeys((".c", ".cc", ".cpp", ".cu", ".cuh", ".h", ".hpp"), c_sites),
}
LARGEST: Final = 2_000_000  # bytes of a source; longer ones are generated
BATCH: Final = 700
SEED: Final = 18
COLUMNS: Final = (
    "id",
    "project",
    "path",
    "function",
    "line",
    "kind",
    "exception",
    "words",
    "holes",
    "codes",
    "handles",
    "area",
)
BATCH_COLUMNS: Final = ("id", "project", "path", "function", "kind", "exception", "words", "area", "line", "traits", "message", "guard")  # fmt: skip
# Which kinds go last where a project has more sites than its bound
ORDER: Final = {
    "fatal": 0,
    "abort": 0,
    "event": 0,
    "raise": 1,
    "throw": 1,
    "error": 1,
    "check": 1,
    "warning": 2,
    "assert": 2,
}


@dataclass(frozen=True, slots=True)
class Project:
    """A project of areas.yaml.

    Attributes:
        name: As in areas.yaml.
        paths: Patterns of paths with their areas; an empty area leaves a path out.
        most: The most sites that the catalogue keeps of it.
        whole: Patterns of the files whose sites stay before all others.
    """

    name: str
    paths: tuple[tuple[re.Pattern[str], str], ...]
    most: int
    whole: tuple[re.Pattern[str], ...] = ()

    def area(self, path: str) -> str:
        """The area of a path; empty where the catalogue leaves it out."""
        return next((area for pattern, area in self.paths if pattern.fullmatch(path)), "")


def glob(pattern: str) -> re.Pattern[str]:
    """A pattern in which * stays within a folder and ** crosses folders."""
    parts = re.split(r"(\*\*/|\*\*|\*)", pattern)
    return re.compile(
        "".join({"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*"}.get(part, re.escape(part)) for part in parts)
    )


def read_areas(document: Mapping[str, Any]) -> tuple[dict[str, Project], tuple[re.Pattern[str], ...]]:
    """The projects of areas.yaml, and what is left out of all of them.

    Raises:
        ValueError: A path names an area that the table does not know.
    """
    projects: dict[str, Project] = {}
    for name, told in document["projects"].items():
        paths = [(pattern, area) for entry in told["paths"] for pattern, area in entry.items()]
        for pattern, area in paths:
            if area and area not in document["areas"]:
                raise ValueError(f"areas.yaml, project {name}, path {pattern}: there is no area {area}")
        projects[name] = Project(
            name,
            tuple((glob(p), area) for p, area in paths),
            told.get("most", 10_000),
            tuple(glob(p) for p in told.get("whole", ())),
        )
    return projects, tuple(glob(pattern) for pattern in document["leave_out"])


def sites_of(project: Project, root: Path, left_out: Iterable[re.Pattern[str]]) -> Iterator[Site]:
    """All sites of a project, file by file in the order of their paths."""
    for file in sorted(root.rglob("*")):
        path = file.relative_to(root).as_posix()
        read = READERS.get(file.suffix) or (shell_sites if "." not in file.name else None)
        area = project.area(path)
        if read is None or not area or any(pattern.fullmatch(path) for pattern in left_out):
            continue
        if file.is_symlink() or not file.is_file() or file.stat().st_size > LARGEST:
            continue
        text = file.read_text("utf-8", "replace")
        for site in read(text, path):
            yield site.named(project.name, area)


def all_sites(project: Project, sources: Path, left_out: Iterable[re.Pattern[str]]) -> list[Site]:
    """The sites of a project that tell enough, from its folder in the sources."""
    return [site for site in sites_of(project, (sources / project.name).resolve(), left_out) if telling_enough(site)]


def telling_enough(site: Site) -> bool:
    """Whether a reader could say anything of a site: internal asserts and bare types stay out."""
    if site.kind in {"assert", "check"}:
        return len(site.words) >= 3
    return len(site.words) >= 2 or (site.kind == "raise" and (len(site.words) >= 1 or len(site.exception) > 12))


def distinct(sites: Iterable[Site], known: set[tuple[str, tuple[str, ...], str]]) -> list[Site]:
    """The sites whose type, words and area are new; those that `known` holds are dropped."""
    kept: list[Site] = []
    ids: set[str] = set()
    for site in sites:
        if site.twin not in known and site.id not in ids:
            known.add(site.twin)
            ids.add(site.id)
            kept.append(site)
    return kept


def thinned(
    sites: list[Site], most: int, weights: Mapping[str, float], whole: Sequence[re.Pattern[str]] = ()
) -> list[Site]:
    """At most so many sites: each area its share, of each file the most telling first.

    Args:
        sites: The sites of a project.
        most: How many stay.
        weights: The share of an area beside the others; 1 where none is given.
        whole: Patterns of the files whose sites stay before all others.
    """
    if len(sites) <= most:
        return sites
    files: Counter[str] = Counter()
    ranked: list[tuple[int, str, Site]] = []
    for site in sorted(sites, key=lambda s: (ORDER.get(s.kind, 2), s.id)):
        ranked.append((ORDER.get(site.kind, 2) * 4 + files[site.path], site.id, site))
        files[site.path] += 1
    taken: Counter[str] = Counter()
    shares: list[tuple[float, str, Site]] = []
    for _, identity, site in sorted(ranked, key=lambda entry: entry[:2]):
        if any(pattern.fullmatch(site.path) for pattern in whole):
            shares.append((0.0, identity, site))
            continue
        taken[site.area] += 1
        shares.append((taken[site.area] / weights.get(site.area, 1), identity, site))
    return [site for _, _, site in sorted(shares, key=lambda entry: entry[:2])[:most]]


def row(site: Site) -> str:
    """A line of sites.tsv."""
    fields = (
        site.id, site.project, site.path, site.function, str(site.line), site.kind, site.exception, " ".join(site.words),
        " ".join(site.holes), " ".join(site.codes), " ".join(site.handles[:3]), site.area,
    )  # fmt: skip
    return "\t".join(re.sub(r"[\t\n\r]", " ", field) for field in fields)


def batch_row(site: Site) -> str:
    """A line of a reader's batch: with the message and the condition, which stay out of the repository."""
    fields = (
        site.id, site.project, site.path, site.function, site.kind, site.exception, " ".join(site.words), site.area, str(site.line),
        " ".join((*site.codes, *(f"caught:{name}" for name in site.handles[:3]))), site.message.replace("{<", "<").replace(">}", ">"),
        site.guard,
    )  # fmt: skip
    return "\t".join(re.sub(r"[\s]+", " ", field) for field in fields)


def write_batches(sites: list[Site], folder: Path) -> int:
    """Shuffles the sites with a fixed seed and writes them in batches for readers; gives the number of batches."""
    folder.mkdir(parents=True, exist_ok=True)
    shuffled = sorted(sites, key=lambda site: site.id)
    Random(SEED).shuffle(shuffled)
    head = "\t".join(BATCH_COLUMNS)
    batches = [shuffled[at : at + BATCH] for at in range(0, len(shuffled), BATCH)]
    for number, batch in enumerate(batches, 1):
        (folder / f"{number:02}.tsv").write_text("\n".join([head, *map(batch_row, batch)]) + "\n", "utf-8")
    return len(batches)


def main() -> None:
    """Harvest."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sources", type=Path)
    parser.add_argument("--only", type=lambda text: text.split(","), default=[])
    parser.add_argument("--batches", type=Path)
    parser.add_argument("--jobs", type=int, default=2)
    args = parser.parse_args()
    document = yaml.safe_load((HERE / "areas.yaml").read_text("utf-8"))
    projects, left_out = read_areas(document)
    known: set[tuple[str, tuple[str, ...], str]] = set()
    sites: list[Site] = []
    wanted = [project for name, project in projects.items() if not args.only or name in args.only]
    missing = [project.name for project in wanted if not (args.sources / project.name).is_dir()]
    if missing:
        sys.exit(f"{args.sources}: no folder for {', '.join(missing)}")
    with ProcessPoolExecutor(args.jobs) as pool:
        reading = partial(all_sites, sources=args.sources, left_out=left_out)
        for project, found in zip(wanted, pool.map(reading, wanted), strict=True):
            fresh = distinct(found, known)
            kept = thinned(fresh, project.most, document.get("weights", {}), project.whole)
            print(f"{project.name:24} {len(found):6} found {len(fresh):6} distinct {len(kept):6} kept", flush=True)
            sites += kept
    total = len(sites)
    print(
        f"{total} sites, {len({s.project for s in sites})} projects, by area {dict(Counter(s.area for s in sites).most_common())}"
    )
    print(f"kinds {dict(Counter(s.kind for s in sites))}, languages {dict(Counter(s.language for s in sites))}")
    if args.only:
        return
    sites.sort(key=lambda site: (site.project, site.path, site.line, site.id))
    (HERE / "sites.tsv").write_text("\n".join(["\t".join(COLUMNS), *map(row, sites)]) + "\n", "utf-8")
    versions = dict(line.split("\t", 1) for line in (args.sources / "VERSIONS").read_text("utf-8").splitlines())
    counts = Counter(site.project for site in sites)
    lines = [f"{name}\t{versions.get(name, chr(9) * 2)}\t{count}" for name, count in sorted(counts.items())]
    (HERE / "projects.tsv").write_text("\n".join(["project\tversion\torigin\tlicence\tsites", *lines]) + "\n", "utf-8")
    if args.batches:
        print(f"{write_batches(sites, args.batches)} batches")


if __name__ == "__main__":
    main()
