"""The callback for training loops: one line every n steps, readable as a series, and never in the way of the training."""

from __future__ import annotations

import ast
import importlib.util
import json
import math
import sys
from types import SimpleNamespace

import pytest

from kb.parsers.logs.progress.formats import read_line
from tests.support.paths import ROOT

FILE = ROOT / "callbacks/signalbox_callback.py"


@pytest.fixture(scope="module")
def callback():
    """The file, imported as if it had been copied somewhere."""
    spec = importlib.util.spec_from_file_location("signalbox_callback", FILE)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Tensor:
    """What PyTorch hands out in place of a number. `read`: how often it was looked into."""

    def __init__(self, value):
        self.value, self.read = value, 0

    def item(self):
        """Its one element."""
        self.read += 1
        return self.value


def lines(path):
    """The lines of a log without their times."""
    found = [json.loads(line) for line in path.read_text().splitlines()]
    assert all(one.pop("timestamp").endswith("Z") for one in found)
    return found


def test_it_needs_nothing():
    """Only the standard library is imported, and syntax that old interpreters know."""
    tree = ast.parse(FILE.read_text(), feature_version=(3, 7))
    names = {name.name for node in ast.walk(tree) if isinstance(node, ast.Import) for name in node.names}
    names |= {str(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert names - {"__future__"} <= set(sys.stdlib_module_names)


def test_one_line_every_n_steps(callback, tmp_path):
    """The first step and every n-th get a line; tensors of the others are not looked into, as that waits for the GPU."""
    log = callback.StepLog(tmp_path / "logs", every=4, rank=3)
    losses = [Tensor(1.0 / step) for step in range(1, 10)]
    for step, loss in enumerate(losses, 1):
        log.step(step, loss=loss, learning_rate=0.5, note="text")
    log.close()
    assert lines(tmp_path / "logs/rank-3.jsonl") == [
        {"rank": 3, "step": step, "loss": 1.0 / step, "learning_rate": 0.5} for step in (1, 4, 8)
    ]
    assert [loss.read for loss in losses] == [1, 0, 0, 1, 0, 0, 0, 1, 0]


def test_what_it_writes_is_read(callback, tmp_path):
    """Step, loss, norm, rate, throughput, rank and time come back as a point of a series; NaN too."""
    log = callback.StepLog(tmp_path / "log-{rank}.jsonl", every=1, rank=7)
    log.step(1, loss=2.0)
    log.step(2, loss=math.nan, gradient_norm=4, learning_rate=1e-3, tokens=1000, gpu_memory_usage=3_000_000_000)
    log.close()
    [_, line] = (tmp_path / "log-7.jsonl").read_bytes().splitlines()
    point = read_line(line)
    assert point.loss is not None
    assert (point.step, math.isnan(point.loss), point.grad_norm, point.learning_rate) == (2, True, 4.0, 1e-3)
    assert (point.rank, point.memory, point.throughput > 0, point.time > 1.7e9) == (7, 3e9, True, True)


def test_chosen_ranks_write(callback, tmp_path, monkeypatch):
    """Other ranks leave no file; the rank is the launcher's."""
    monkeypatch.setenv("RANK", "2")
    callback.StepLog(tmp_path, ranks=(0,)).step(1, loss=1.0)
    assert list(tmp_path.iterdir()) == []
    log = callback.StepLog(tmp_path, ranks=(2,))
    log.step(1, loss=1.0)
    log.close()
    assert [path.name for path in tmp_path.iterdir()] == ["rank-2.jsonl"]


def test_the_training_goes_on_when_the_log_cannot(callback, tmp_path, capsys):
    """A path that cannot be written is reported once."""
    (tmp_path / "file").write_text("")
    log = callback.StepLog(tmp_path / "file/logs", every=1, rank=0)
    log.step(1, loss=1.0)
    log.step(2, loss=1.0)
    assert capsys.readouterr().err.count("cannot be written") == 1


def test_hugging_face(callback, tmp_path):
    """What its Trainer logs, evaluations too, and not the summary at the end; other events do nothing."""
    one = callback.SignalboxCallback(tmp_path, rank=0)
    state = SimpleNamespace(global_step=3, num_input_tokens_seen=0)
    one.on_train_begin(None, state, None)
    one.on_log(None, state, None, logs={"loss": 2.5, "grad_norm": 1.5, "learning_rate": 1e-4, "epoch": 0.5})
    one.on_log(None, state, None, logs={"eval_loss": 2.25, "eval_runtime": 3.0})
    one.on_log(None, state, None, logs={"train_runtime": 9.0, "train_loss": 2.0})
    one.on_train_end(None, state, None)
    assert lines(tmp_path / "rank-0.jsonl") == [
        {"rank": 0, "step": 3, "loss": 2.5, "gradient_norm": 1.5, "learning_rate": 1e-4, "epoch": 0.5},
        {"rank": 0, "step": 3, "eval_loss": 2.25},
    ]
    with pytest.raises(AttributeError):
        one.something_else  # noqa: B018


def test_lightning(callback, tmp_path):
    """Every n batches: logged metrics, else the loss that the step gave, and the optimizer's rate; each step once."""
    one = callback.SignalboxLightningCallback(tmp_path, every=2)
    optimizer = SimpleNamespace(param_groups=[{"lr": 0.25}])
    trainer = SimpleNamespace(global_rank=5, global_step=0, callback_metrics={}, optimizers=[optimizer])
    one.setup(trainer, None, "fit")
    one.on_fit_start(trainer, None)
    for step in (1, 2, 2, 3):
        trainer.global_step = step
        trainer.callback_metrics = {"train_loss_step": Tensor(1.5)} if step == 2 else {}
        one.on_train_batch_end(trainer, None, {"loss": Tensor(9.0)}, None, 0)
    one.teardown(trainer, None, "fit")
    assert lines(tmp_path / "rank-5.jsonl") == [
        {"rank": 5, "step": 1, "loss": 9.0, "learning_rate": 0.25},
        {"rank": 5, "step": 2, "loss": 1.5, "learning_rate": 0.25},
    ]
    assert one.state_dict() == {}
