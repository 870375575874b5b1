"""What the tests of pages share: something kept of each kind, hostile where it can be, and a reader that knows what a page may hold."""

from __future__ import annotations

from html.parser import HTMLParser
from typing import Any

from bot.pages.attachments import PageAttachments
from bot.pages.comparisons import Comparisons
from bot.pages.log_context import LogContext
from bot.pages.templates import script
from kb.collectives.sequence import GroupSequence, Standing
from kb.timeline.curves import Chart, CurveLine, Curves
from kb.timeline.heat import HeatMap, HeatRow
from kb.timeline.picture import COLUMNS, Mark, Timeline, TimelineRow
from kb.timeline.rows import RowError
from kb.timeline.shared import SharedTrait, SharedTraits
from tests.support.bot_samples import NOON

ATTACKS = (
    "<script>document.title='owned'</script>",
    "</style><script>document.title='owned'</script>",
    "</title></pre></svg><img src=x onerror=\"document.title='owned'\">",
    '"><svg onload="document.title=\'owned\'">',
    "' autofocus onfocus='document.title=1' x='",
    "javascript:document.title='owned'",
    "]]><!--><script>document.title='owned'</script>",
    "}*{background:red!important}body{display:none}</style>",
    "{{ 7 * 7 }}{% for one in range(10**9) %}x{% endfor %}",
    "\u202egnp.exe\u202c \u0000\u001b[31mred \ud800 \ufeff",
    "x" * 20_000,
)
EVERYTHING = " ".join(ATTACKS)


def row(label: str = "rank 0", until: int = 200, **more: Any) -> TimelineRow:
    """A row that writes up to a column."""
    return TimelineRow(label, heard="9" * until + "0" * (COLUMNS - until), last=NOON + until, step=until, **more)


def timeline(text: str = "Boom") -> Timeline:
    """Four minutes of three ranks, one of them a suspect."""
    return Timeline(
        finding=text,
        job=text,
        start=NOON,
        end=NOON + 240.0,
        rows=(
            row(
                text[:40],
                100,
                why="suspect",
                suspect=True,
                node=text[:40],
                error=RowError(NOON + 100.0, text, cause=True),
            ),
            row("rank 1", 220, error=RowError(NOON + 150.0, text)),
            row("rank 2", 220),
        ),
        marks=(Mark("cause", NOON + 100.0, text[:100]), Mark("end", NOON + 239.0, "end of the job")),
        notes=(text,),
    )


def folded() -> PageAttachments:
    """A suspect that falls silent, and the other 63 ranks by node, as rows of a timeline and of a heat map."""
    nodes = [(f"gpu-{node:03d}", f"{8 * node}-{8 * node + 7}") for node in range(1, 8)] + [
        ("trainer-pool-b-worker-000", "0-4,6-7")
    ]
    silent = row("rank 5", 150, why="suspect", suspect=True, node="trainer-pool-b-worker-000")
    others = (row(node, 239, node=node, ranks=ranks, count=8) for node, ranks in nodes)
    marks = (Mark("cause", NOON + 150.0, "first cause"), Mark("end", NOON + 239.0, "end of the job"))
    drawn = Timeline("Rank 5 fell silent", "llm", NOON, NOON + 240.0, rows=(silent, *others), marks=marks)
    slow = HeatRow("rank 5", "0" * 10 + "5" * 10, 2.2, 15, slow=(11, 20), suspect=True)
    rest = (HeatRow(f"ranks {ranks}", "0" * 20, 1.0, 1, 8, node) for node, ranks in nodes)
    heat = HeatMap("Own work in a step", 0.5, 1.0, 20, 64, (slow, *rest), "Slow: rank 5", "", 20)
    return PageAttachments(drawn, compared=Comparisons(heat, sequences=(sequence(),)))


def curves(text: str = "Loss") -> Curves:
    """A chart of one rank that leaves two others, its last value no number."""
    values = tuple(float(at) for at in range(40))
    odd = CurveLine(text[:40], (*values[:20], *(None,) * 10, *(90.0,) * 9, None), "apart", (39,))
    return Curves(
        (
            Chart(
                "loss", text[:40], "", "step", 0.0, 10.0, 3, (odd, CurveLine("rank 1", values), CurveLine("rank 2", values)),
                values, values, tuple(value + 1 for value in values), 390.0,
            ),
            Chart("gpu_util", "GPU utilisation", "%", "time", NOON, 60.0, 1, (CurveLine("gpu-1", values),)),
        )
    )  # fmt: skip


def compared(text: str = "Boom") -> Comparisons:
    """Three rows over twenty steps, one slow, one of a node; and a trait of two suspects."""
    rows = (
        HeatRow(text[:40], "0" * 10 + "5" * 10, 2.2, 15, slow=(11, 20), suspect=True),
        HeatRow("rank 1", "0" * 10 + "." * 10, 1.0, 1),
        HeatRow("ranks 2-9", "0" * 20, 1.0, 1, 8, text[:40]),
    )
    heat = HeatMap("Own work in a step", 0.5, 1.0, 20, 10, rows, text[:300], text[:300], 18)
    return Comparisons(heat, SharedTraits("rank", 2, 10, (SharedTrait(text[:40], 2, 2, 1, 8),)), (sequence(text),))


def sequence(text: str = "all_gather") -> GroupSequence:
    """Ten collectives of a group: one rank has not queued the ninth, one queued another, one has no dump."""
    rows = (
        Standing("5", 1, (*("done",) * 8, "absent", "absent"), ("",) * 10, suspect=True),
        Standing("6", 1, (*("done",) * 8, "queued", "absent"), (*("",) * 8, text[:40], "")),
        Standing("7", 1, ("unknown",) * 10, ("",) * 10, dumped=False),
        Standing("0-4", 5, (*("done",) * 8, "running", "queued"), ("",) * 10),
    )
    return GroupSequence(text[:40], 101, 109, (text[:20],) * 10, rows, text[:300], 3)


def kept(text: str = "Boom", place: tuple[str, int] = ("logs/rank-7.log", 0)) -> PageAttachments:
    """One thing of each kind."""
    around = {place: LogContext(*place, ("before", text[:300]), (text[:300], "after"))}
    return PageAttachments(timeline(text), curves(text), around, compared(text))


class Read(HTMLParser):
    """A page, read: what it shows, its links, and what it holds that no page of ours may (`faults`)."""

    TAGS = frozenset(
        [
            "html",
            "head",
            "meta",
            "title",
            "style",
            "body",
            "header",
            "main",
            "section",
            "footer",
            "nav",
            "div",
            "p",
            "span",
            "h1",
            "h2",
            "h3",
            "h4",
            "ul",
            "ol",
            "li",
            "dl",
            "dt",
            "dd",
            "a",
            "code",
            "pre",
            "mark",
            "strong",
            "figure",
            "figcaption",
            "details",
            "summary",
            "table",
            "thead",
            "tbody",
            "tr",
            "th",
            "td",
            "svg",
            "path",
            "line",
            "rect",
            "circle",
            "text",
            "tspan",
            "form",
            "label",
            "select",
            "option",
            "input",
            "button",
            "script",
        ]
    )
    ATTRIBUTES = frozenset(
        [
            "lang",
            "charset",
            "content",
            "name",
            "http-equiv",
            "class",
            "id",
            "href",
            "rel",
            "tabindex",
            "role",
            "scope",
            "aria-label",
            "aria-labelledby",
            "data-label",
            "aria-hidden",
            "open",
            "width",
            "height",
            "viewbox",
            "preserveaspectratio",
            "shape-rendering",
            "overflow",
            "d",
            "x",
            "y",
            "x1",
            "x2",
            "y1",
            "y2",
            "r",
            "dx",
            "transform",
            "method",
            "action",
            "value",
            "maxlength",
            "autocapitalize",
            "spellcheck",
            "selected",
            "type",
            "hidden",
            "placeholder",
        ]
    )

    def __init__(self, page: str, *, pictures: str | None = None) -> None:
        """`pictures`: how the addresses of the pictures begin that it may have; None for none."""
        super().__init__()
        self._pictures = pictures
        self.faults: list[str] = []
        self.links: list[str] = []
        self.styles: list[str] = []
        self._open: list[str] = []
        self._shown: list[str] = []
        self.feed(page)
        self.close()
        if self._open:
            self.faults.append(f"never closed: {self._open}")

    @property
    def text(self) -> str:
        """All text of the body."""
        return "".join(self._shown)

    def missing(self, *wanted: str) -> list[str]:
        """Which of these are not shown, each behind the one before."""
        at, found = 0, []
        for text in wanted:
            place = self.text.find(text, at)
            at = max(at, place)
            found += [text] if place < 0 else []
        return found

    def handle_starttag(self, tag, attrs):
        """An element begins."""
        if tag in ("img", "source", "picture") and self._pictures is not None:
            self._picture(tag, dict(attrs))
            return
        if tag not in self.TAGS:
            self.faults.append(f"<{tag}>")
        self.faults += [f"{tag} {name}" for name, _ in attrs if name not in self.ATTRIBUTES]
        self.links += [value or "" for name, value in attrs if name in ("href", "action")]
        if tag not in ("meta", "input"):
            self._open.append(tag)

    def _picture(self, tag: str, attrs: dict[str, str | None]) -> None:
        """One of the service's own, with words for those who cannot see it."""
        known = {"img": {"src", "alt", "width", "loading"}, "source": {"media", "srcset"}, "picture": set()}[tag]
        address = attrs.get("src") or attrs.get("srcset") or ""
        if set(attrs) != known or (tag != "picture" and not address.startswith(self._pictures or "")):
            self.faults.append(f"{tag} {attrs}")
        if tag == "picture":
            self._open.append(tag)

    def handle_startendtag(self, tag, attrs):
        """An element without anything in it."""
        self.handle_starttag(tag, attrs)
        self._open.pop()

    def handle_endtag(self, tag):
        """An element ends: the last one that began."""
        if not self._open or self._open.pop() != tag:
            self.faults.append(f"</{tag}>")

    def handle_data(self, data):
        """Collect text outside of the head."""
        if "style" in self._open:
            self.styles.append(data)
        elif "script" in self._open:
            self.faults += [] if data == script() else [f"a script that is not ours: {data[:80]}"]
        elif "body" in self._open:
            self._shown.append(data)
