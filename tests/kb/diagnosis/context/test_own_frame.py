"""Which place in the code the traceback of an exception points at (kb.diagnosis.context.own_frame)."""

from __future__ import annotations

import pytest

from kb.diagnosis.context.own_frame import frames_of, innermost
from kb.model import Structure

SITE = "/opt/env/lib/python3.11/site-packages"
OWN = "/srv/lm/tune.py:88 in main"


def place(*frames: str) -> str:
    """The place of an exception with these frames, outermost first."""
    return innermost(Structure("exception", 0, 90, "ValueError: x", {"frames": "\n".join(frames)}))


@pytest.mark.parametrize(
    ("below", "expected"),
    [
        # the run's own line called what failed, through PyTorch's own frames or few of another library
        ([], "/srv/lm/tune.py:88 in main"),
        ([f"{SITE}/torch/nn/functional.py:2551 in embedding"], "/srv/lm/tune.py:88 in main"),
        ([f"{SITE}/hub/files.py:12 in open_file", f"{SITE}/hub/net.py:9 in get"], "/srv/lm/tune.py:88 in main"),
        (
            [f"{SITE}/requests/{name}.py:5 in {name}" for name in ("api", "sessions", "adapters", "models")],
            "/srv/lm/tune.py:88 in main",
        ),
        # it started a loop, or what failed is far below
        (
            [f"{SITE}/trainers/base.py:40 in train", f"{SITE}/trainers/scores.py:7 in accuracy"],
            "trainers/scores.py:7 in accuracy",
        ),
        (
            [
                f"{SITE}/trainers/base.py:40 in fit",
                f"{SITE}/trainers/net.py:7 in forward",
                f"{SITE}/torch/nn/functional.py:1 in linear",
            ],
            "trainers/net.py:7 in forward",
        ),
        ([f"{SITE}/sets/{name}.py:5 in step_{name}" for name in "abcd"], "sets/d.py:5 in step_d"),
        # of a loop that calls the run's own code again, that code is the place
        ([f"{SITE}/trainers/base.py:40 in fit", "/srv/lm/loss.py:3 in contrast"], "/srv/lm/loss.py:3 in contrast"),
        # nothing but frameworks below
        ([f"{SITE}/torch/optim/sgd.py:40 in train"], "/srv/lm/tune.py:88 in main"),
        (["/usr/lib64/python3.9/subprocess.py:373 in check_call"], "/srv/lm/tune.py:88 in main"),
    ],
)
def test_the_place_is_near_what_failed(below: list[str], expected: str) -> None:
    """The run's own innermost line, unless it only started a loop that failed far below."""
    assert place(OWN, *below).endswith(expected)
    assert place("/srv/lm/launch.py:1 in run", OWN, *below).endswith(expected)


def test_frames_of_libraries_alone_name_no_place() -> None:
    """The run's own code may have been cut off."""
    assert place(f"{SITE}/trainers/base.py:40 in train", f"{SITE}/trainers/scores.py:7 in accuracy") == ""


@pytest.mark.parametrize(
    ("below", "calls"),
    [
        ([], False),
        ([f"{SITE}/tables/frame.py:7 in get"], True),
        ([f"{SITE}/torch/nn/modules/module.py:9 in __getattr__"], False),
        # of a loop, the library's frame that raised it is the place
        ([f"{SITE}/trainers/base.py:40 in train", f"{SITE}/trainers/scores.py:7 in accuracy"], False),
        (
            [f"{SITE}/trainers/base.py:40 in fit", f"{SITE}/trainers/net.py:7 in forward", f"{SITE}/torch/x.py:1 in y"],
            True,
        ),
    ],
)
def test_a_place_that_only_called_what_failed_is_told_apart(below: list[str], calls: bool) -> None:
    """Its line holds no wrong value, but passes one or asks for what does not exist."""
    found = frames_of(Structure("exception", 0, 90, "KeyError: x", {"frames": "\n".join([OWN, *below])}))
    assert found is not None
    assert found.calls is calls


@pytest.mark.parametrize(
    "file",
    ["scratch/torchinductor_ana/yj/cyj7hhg6.py", "torchinductor/3x/c3xab.py", "home/ana/.triton/cache/4Q/kernel.py"],
)
def test_a_generated_file_is_no_place_in_the_code(file: str) -> None:
    """Nobody can fix it; the run's own line called the compiled function."""
    assert (
        place(OWN, f"{SITE}/torch/_inductor/output_code.py:404 in __call__", f"/{file}:160 in call")
        == "/srv/lm/tune.py:88 in main"
    )


@pytest.mark.parametrize("file", ["frames/_libs/table.pxi", "frames/_libs/index.pyx", "stringsource"])
def test_the_source_of_a_compiled_library_is_no_place_in_the_runs_code(file: str) -> None:
    """Its path is relative, without the folder of the packages."""
    assert place(OWN, f"{SITE}/frames/core.py:9 in get", f"{file}:26 in frames.lookup") == "/srv/lm/tune.py:88 in main"
