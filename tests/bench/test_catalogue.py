"""The harvest of error sites reads what it should from small sources, and the labels of readers are joined honestly."""

from __future__ import annotations

import re

import pytest
import yaml

from bench.catalogue import harvest, labels
from bench.catalogue.native_sites import c_sites, go_sites, rust_sites, shell_sites
from bench.catalogue.python_sites import python_sites
from kb.classifier.words import telling
from tests.support.paths import ROOT

PYTHON = """
import logging
logger = logging.getLogger(__name__)

class Loader:
    def open(self, path, workers):
        if workers < 0:
            raise ValueError(f"the number of workers must not be negative, got {len(workers)}")
        assert self.ready, "The loader is not ready, call prepare first"
        assert self.ready
        try:
            import fastreader
        except ImportError as error:
            msg = "fastreader is required for path %s" % path
            raise RuntimeError(msg) from error
        except OSError as error:
            logger.error("cannot read shard {}: no space left (ENOSPC)".format(path))
            raise
        logger.warning("falling back to the slow reader")

def main(parser, args):
    torch._check(args.size > 0, lambda: f"size has to be positive but is {args.size}")
    if not args.data:
        print("no data directory was given")
        sys.exit(2)
    parser.error("--data and --stream exclude each other")
"""


def test_python_sites_have_type_place_words_and_what_the_handler_caught():
    """Raises, checks, errors and what precedes an exit are found; a bare assert, a re-raise and a plain warning are not."""
    found = [(s.function, s.kind, s.exception, " ".join(s.words), s.handles) for s in python_sites(PYTHON, "loader.py")]
    assert found == [
        ("Loader.open", "raise", "ValueError", "number workers must not negative got", ()),
        ("Loader.open", "assert", "AssertionError", "loader not ready call prepare first", ()),
        ("Loader.open", "raise", "RuntimeError", "fastreader required path", ("ImportError",)),
        ("Loader.open", "error", "", "cannot read shard no space left enospc", ("OSError",)),
        ("main", "check", "RuntimeError", "size positive but", ()),
        ("main", "warning", "", "no data directory given", ()),
        ("main", "abort", "ArgumentParser.error", "--data --stream exclude each other", ()),
    ]


def test_holes_and_codes_of_a_message_are_kept_apart_from_its_words():
    """A hole says what it is for, and an errno is a code as well as a word."""
    sites = list(python_sites(PYTHON, "loader.py"))
    assert sites[0].holes == ("number",)
    assert (sites[3].holes, sites[3].codes) == (("value",), ("ENOSPC",))
    assert sites[0].line == 8


def test_python_that_does_not_parse_gives_nothing():
    """A file of another language version is passed over."""
    assert list(python_sites('raise "old", 1', "a.py")) == []


NATIVE = r"""
namespace net {
// WARN("a comment %d", 1);
void Pair::connect(int fd) {
  TORCH_CHECK(fd >= 0, "Expected a valid descriptor, but got ", fd, " for rank ", rank_);
  if (setup(fd, true)) {
    WARN("NET/X : Call to connect failed : %s (no \"route\")", strerror(errno));
    return ncclSystemError;
  }
  TORCH_CHECK_WITH(OutOfMemoryError, false, "device memory is exhausted, tried ", format(size));
  LOG(FATAL) << "Lost the heartbeat of task " << task << " after " << seconds;
  LOG(INFO) << "all is well with the task";
  throw std::runtime_error("socket was closed early");
}
}
int main(void) { error("%s: Unable to open %s: %m", plugin_type, path); fatal("slurmd needs to run as root"); return 0; }
"""


def test_native_sites_are_read_through_macros_streams_and_throws():
    """Literals and expressions of a call make one message; comments, definitions and information are no sites."""
    found = [(s.function, s.kind, s.exception, " ".join(s.words), s.codes) for s in c_sites(NATIVE, "pair.cc")]
    assert found == [
        ("Pair.connect", "check", "RuntimeError", "expected valid descriptor but got rank", ()),
        ("Pair.connect", "error", "", "net/x call connect failed no route", ("ncclSystemError",)),
        ("Pair.connect", "check", "OutOfMemoryError", "device memory exhausted tried", ()),
        ("Pair.connect", "fatal", "", "lost heartbeat task after", ()),
        ("Pair.connect", "throw", "runtime_error", "socket closed early", ()),
        ("main", "error", "", "unable open", ()),
        ("main", "fatal", "", "slurmd needs run root", ()),
    ]


def test_native_sources_without_an_end_do_not_stop_the_reader():
    """An open string, bracket or comment costs its own site only, in time linear in the text."""
    text = 'void f() { error("fine message text"); } /* open ' + "(" * 20_000 + 'WARN("never closed %d", '
    assert [" ".join(s.words) for s in c_sites(text, "x.c")][:1] == ["fine message text"]


def test_functions_are_found_beside_macros_and_conditional_branches():
    """A macro before a function is not its name, and a branch of #if that opens a brace twice ends with the function."""
    text = """DEFINE_HOOK(open)
void first(int a) {
#ifdef OLD
  if (a) {
#else
  if (!a) {
#endif
    error("first is broken");
  }
}
static int second(int b) { error("second is broken"); return 1; }
"""
    assert [(s.function, s.words[0]) for s in c_sites(text, "x.c")] == [("first", "first"), ("second", "second")]


def test_go_sites_are_errors_logs_and_warning_events():
    """An event has its reason as type; a normal event is no site."""
    source = """package a
func (r *Runner) start(pod string) error {
	klog.ErrorS(err, "Failed to create pod sandbox", "pod", pod)
	r.recorder.Eventf(pod, v1.EventTypeWarning, events.FailedMount, "Unable to mount volumes: %s", names)
	r.recorder.Eventf(pod, v1.EventTypeNormal, events.Started, "Started container %s", names)
	return fmt.Errorf("image %q was not found: %w", image, err)
}"""
    found = [(s.function, s.kind, s.exception, " ".join(s.words), s.holes) for s in go_sites(source, "a.go")]
    assert found == [
        ("start", "error", "", "failed create pod sandbox", ()),
        ("start", "event", "FailedMount", "unable mount volumes", ("value",)),
        ("start", "raise", "", "image not found", ("name", "error")),
    ]


def test_rust_and_shell_sites():
    """Messages of error types and calls of error functions are read."""
    rust = 'fn load() { #[error("invalid header length {len}")] Header, \n Err("the buffer is too small".into()) }'
    assert [" ".join(s.words) for s in rust_sites(rust, "a.rs")] == ["invalid header length", "buffer too small"]
    shell = 'image::check() {\n  [ -f "$1" ] || common::err "No such file or directory: ${1}"\n}\n'
    assert [(s.function, " ".join(s.words)) for s in shell_sites(shell, "a.sh")] == [
        ("image::check", "no file directory")
    ]


def test_telling_words_are_few_and_keep_what_turns_the_meaning():
    """Grammar goes; negations, flags and names stay; a message has at most twelve words."""
    assert telling("It's not possible to use --fp16 with the `torch.bfloat16` dtype")[0] == (
        "not", "possible", "use", "--fp16", "torch.bfloat16", "dtype",
    )  # fmt: skip
    assert len(telling(" ".join(f"word{n}" for n in range(40)))[0]) == 12


def sites(path, *messages):
    """Sites of a source that raises these messages."""
    text = "\n".join(f"raise ValueError({message!r})" for message in messages)
    return [site.named("made", "data") for site in python_sites(text, path)]


def test_equal_sites_count_once_and_ids_do_not_depend_on_lines():
    """Type, words and area decide; another line is the same site."""
    known: set = set()
    first = harvest.distinct(sites("a.py", "bad column names", "bad column names", "empty shard found"), known)
    assert [site.line for site in first] == [1, 3]
    assert harvest.distinct(sites("b.py", "bad column names"), known) == []
    assert sites("a.py", "other text first", "empty shard found")[1].id == first[1].id


def test_a_project_over_its_bound_keeps_sites_of_every_file_and_area():
    """A file with many sites does not push out one with few."""
    many = sites("a.py", *(f"shard number {word} broken" for word in ("one", "two", "three", "four", "five", "six")))
    few = sites("b.py", "tokenizer without vocabulary")
    kept = harvest.thinned(many + few, 3, {})
    assert len(kept) == 3
    assert {site.path for site in kept} == {"a.py", "b.py"}
    assert harvest.thinned(many, 9, {}) == many
    assert {site.path for site in harvest.thinned(many + few, 3, {}, [harvest.glob("a.*")])} == {"a.py"}


def test_globs_of_areas_stay_within_a_folder_unless_told():
    """The first glob that matches names the area; an unknown area is refused."""
    document = {
        "areas": {"data": "", "config": ""},
        "leave_out": ["**/tests/**"],
        "projects": {"made": {"paths": [{"src/*.py": "config"}, {"src/**": "data"}]}},
    }
    projects, left_out = harvest.read_areas(document)
    assert [projects["made"].area(path) for path in ("src/a.py", "src/x/a.py", "b.py")] == ["config", "data", ""]
    assert left_out[0].fullmatch("src/tests/a.py")
    document["projects"]["made"]["paths"].append({"x": "nowhere"})
    with pytest.raises(ValueError, match="there is no area nowhere"):
        harvest.read_areas(document)


def test_batches_hold_every_site_once_in_a_fixed_order(tmp_path):
    """Two calls write the same bytes."""
    made = sites("a.py", *(f"shard of_{n:04} is broken" for n in range(1500)))
    assert harvest.write_batches(made, tmp_path / "one") == 3
    harvest.write_batches(list(reversed(made)), tmp_path / "two")
    texts = [[file.read_text() for file in sorted((tmp_path / name).iterdir())] for name in ("one", "two")]
    assert texts[0] == texts[1]
    ids = [line.split("\t")[0] for text in texts[0] for line in text.splitlines()[1:]]
    assert sorted(ids) == sorted(site.id for site in made)


def test_agreement_is_counted_beside_chance():
    """Cohen's kappa of a worked example: 3 of 4 equal, half expected by chance."""
    first = {"1": "a", "2": "a", "3": "b", "4": "b", "5": "a"}
    second = {"1": "a", "2": "b", "3": "b", "4": "b"}
    found = labels.agreement(first, second)
    assert (found.sites, found.same, found.percent, round(found.kappa, 3)) == (4, 3, 75.0, 0.5)
    assert labels.differences(first, second) == {"2": ("a", "b")}
    assert labels.settled(first, second, {}) == ({"1": "a", "3": "b", "4": "b"}, ["2"])
    assert labels.settled(first, second, {"2": "b"})[1] == []
    assert labels.settled(first, second, {"1": "c", "2": "b"})[0]["1"] == "c"  # checked against the source
    assert labels.per_class(first, second)["a"].percent == 50.0


def test_all_faults_of_a_readers_file_are_named_at_once(tmp_path):
    """Unknown ids and classes, broken lines and second labels have their places."""
    file = tmp_path / "readerA-01.tsv"
    file.write_text("id\tclass\n1\ta\n2\tz\n9\ta\n1\tb\nbroken\n")
    with pytest.raises(ValueError, match=re.escape("readerA-01.tsv:3: no class z")) as raised:
        labels.read_labels([file], {"a", "b"}, {"1", "2"})
    assert [line.split(" ", 1)[0] for line in str(raised.value).splitlines()] == [
        f"readerA-01.tsv:{n}:" for n in (3, 4, 5, 6)
    ]


def test_the_committed_catalogue_keeps_its_promises():
    """At least 8,000 sites of 40 projects, none over 15 %, ids unique and sorted, only facts: few words and no message."""
    folder = ROOT / "bench" / "catalogue"
    head, *rows = [line.split("\t") for line in (folder / "sites.tsv").read_text("utf-8").splitlines()]
    assert tuple(head) == harvest.COLUMNS
    assert all(len(row) == len(head) for row in rows)
    counts: dict[str, int] = {}
    for row in rows:
        counts[row[1]] = counts.get(row[1], 0) + 1
    assert (len(rows) >= 8000, len(counts) >= 40, max(counts.values()) <= 0.15 * len(rows)) == (True, True, True)
    assert len({row[0] for row in rows}) == len(rows)
    assert max(len(row[7].split()) for row in rows) <= 12
    areas = yaml.safe_load((folder / "areas.yaml").read_text("utf-8"))["areas"]
    assert {row[11] for row in rows} <= set(areas)
    assert (folder / "sites.tsv").stat().st_size < 2_500_000
