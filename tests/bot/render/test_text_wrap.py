"""Words that are longer than a line: paths break behind a `/`, other words behind a separator, else anywhere."""

import pytest

from bot.render.text_wrap import columns, last_folders, wrapped

PATHS = (
    "/lustre/portfolios/llm/users/somebody/2026-11-20_7b_bf16_tp4_pp2/checkpoints/iter_0004000/model_optim_rng.pt:12",
    "s3://training-data/pile-deduplicated/shards/00/tokenized/train-00012-of-01024.parquet/part-00000-of-00016",
    "C:\\Users\\somebody\\experiments\\seven-billion\\logs\\attempt-3\\torchelastic_k2j\\attempt_0\\3\\stderr.log:88",
)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("width", [40, 66, 86])
def test_a_path_breaks_behind_its_folders(path, width):
    """Every part but the last ends with a separator of folders."""
    parts = list(wrapped(path, width))
    assert max(map(columns, parts)) <= width
    assert "".join(parts) == path  # nothing is added, nothing is lost
    assert all(part[-1] in "/\\" for part in parts[:-1]), parts


def test_a_folder_that_is_too_long_breaks_behind_a_separator_of_its_name():
    """A name is cut at its own separators, not between any two letters."""
    name = "llama-3-70b-continued-pretraining-with-long-context-on-mixture-of-web-and-code"
    assert list(wrapped(f"/ckpt/{name}/step.pt", 40)) == [
        "/ckpt/llama-3-70b-continued-pretraining-",
        "with-long-context-on-mixture-of-web-and-",
        "code/step.pt",
    ]


def test_other_words_break_behind_a_separator_or_anywhere():
    """Where there is no separator, or only near the start, the line is filled."""
    assert list(wrapped("world_size=16,tensor_parallel=4,pipeline_parallel=2", 40)) == [
        "world_size=16,tensor_parallel=4,",
        "pipeline_parallel=2",
    ]
    assert list(wrapped("9f" * 30, 40)) == ["9f" * 20, "9f" * 10]
    assert list(wrapped(f"/a/{'b' * 50}", 40)) == [f"/a/{'b' * 37}", "b" * 13]  # no line of three characters
    assert list(wrapped("训练" * 15, 40)) == ["训练" * 10, "训练" * 5]


def test_a_place_loses_its_first_folders():
    """Only as many as it must; one that would not even fit by its name stays whole."""
    place = "/data/runs/job-4711/logs/train.log:44 (rank 1)"

    assert last_folders(place, 60) == place
    assert last_folders(place, 40) == "\N{HORIZONTAL ELLIPSIS}/job-4711/logs/train.log:44 (rank 1)"
    assert last_folders(place, 12) == place
