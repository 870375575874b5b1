"""Who owns a failed import: the user who installed the package, unless the lines show the site's own software."""

from __future__ import annotations

import pytest

from bot.authoring.selftest import evidence_of
from bot.rulebase.loader import knowledge
from kb.diagnosis.engine import diagnose
from kb.report import Report
from kb.scanning.matcher import Matcher

KNOWN = knowledge()


@pytest.fixture(scope="module")
def engine() -> Matcher:
    """The whole base's patterns, compiled once."""
    return KNOWN.matcher()


def diagnosed(engine: Matcher, text: str) -> Report:
    """The report on the log of one rank."""
    return diagnose(evidence_of(KNOWN, engine, {"rank-0.log": text.encode()}), KNOWN.rulebook)


def raised(error: str, *frames: str) -> str:
    """A traceback through these files."""
    lines = "".join(f'  File "{file}", line 12, in <module>\n    import kernels\n' for file in frames)
    return f"Traceback (most recent call last):\n{lines}{error}\n"


OWN = (
    "/home/ada/.local/lib/python3.11/site-packages/flash_attn/flash_attn_interface.py",
    "/scratch/ada/venv/lib/python3.10/site-packages/xformers/ops/__init__.py",
    "/data/teams/nlp/miniforge3/envs/train/lib/python3.11/site-packages/bitsandbytes/cextension.py",
    "/workspace/.venv/lib/python3.12/site-packages/apex/__init__.py",
    "/global/common/software/m1234/ada/conda/envs/llm/lib/python3.11/site-packages/deepspeed/ops/op.py",
    "/opt/conda/lib/python3.11/site-packages/transformer_engine/__init__.py",  # an image: nothing shows whose
    "/usr/local/lib/python3.10/dist-packages/vllm/_custom_ops.py",
)
SITE = (
    "/opt/cray/pe/python/3.11.7/lib/python3.11/site-packages/mpi4py/__init__.py",
    "/cm/shared/apps/pytorch/2.4/lib/python3.10/site-packages/torch/__init__.py",
    "/cvmfs/software.eessi.io/versions/2023.06/software/linux/x86_64/amd/zen3/software/PyTorch/lib/torch/__init__.py",
    "/sw/aarch64/pytorch/2.6/lib/python3.12/site-packages/torchvision/__init__.py",
)


@pytest.mark.parametrize("file", OWN)
@pytest.mark.parametrize(
    "error",
    [
        "ImportError: {folder}/kernels.so: undefined symbol: _ZN3c105ErrorC2ENS_14SourceLocation",
        "ImportError: libcudart.so.11.0: cannot open shared object file: No such file or directory",
        "ModuleNotFoundError: No module named 'einops'",
        "ImportError: cannot import name 'rotary' from 'kernels' ({file})",
    ],
)
def test_packages_of_users_are_theirs(engine: Matcher, file: str, error: str) -> None:
    """In homes, environments and images, whatever part failed."""
    text = raised(error.format(folder=file.rpartition("/")[0], file=file), "/proj/llm/train.py", file)
    report = diagnosed(engine, text)
    assert report.diagnoses[0].fault == "dependency"
    assert report.diagnoses[0].owner == report.decision.owner == "user"


@pytest.mark.parametrize("file", SITE)
def test_packages_of_the_site_are_the_platforms(engine: Matcher, file: str) -> None:
    """In the trees that a site installs for everybody."""
    folder = file.rpartition("/")[0]
    for error in (
        f"ImportError: {folder}/kernels.so: undefined symbol: _ZN3c105ErrorC2ENS_14SourceLocation",
        "ModuleNotFoundError: No module named 'einops'",
    ):
        report = diagnosed(engine, raised(error, "/proj/llm/train.py", file))
        assert report.diagnoses[0].fault == "dependency"
        assert report.diagnoses[0].owner == report.decision.owner == "platform"


@pytest.mark.parametrize(
    "text",
    [
        raised(
            "ImportError: /opt/cray/pe/lib64/libstdc++.so.6: version `GLIBCXX_3.4.32' not found (required by "
            "/home/ada/.conda/envs/llm/lib/python3.11/site-packages/flash_attn_2_cuda.so)",
            "/home/ada/train.py",
        ),
        raised("ModuleNotFoundError: No module named 'my_models'", "/home/ada/llm/train.py"),
        "/var/spool/slurmd/job4711/slurm_script: line 9: torchrun: command not found\n",
    ],
)
def test_the_users_part_decides_where_both_are_named(engine: Matcher, text: str) -> None:
    """A library of the site that is too old for what the user installed; the user's own module; a bare command."""
    report = diagnosed(engine, text)
    assert report.diagnoses[0].fault == "dependency"
    assert report.decision.owner == "user"


def test_a_driver_is_the_platforms(engine: Matcher) -> None:
    """Its class says so, without any path."""
    report = diagnosed(
        engine, "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 550.54\n"
    )
    assert report.diagnoses[0].fault == "driver_mismatch"
    assert report.decision.owner == "platform"
