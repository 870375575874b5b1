"""Train a tiny language model with Lightning."""

import argparse
import time
from datetime import timedelta

import hooks
import lightning as L
import torch
from corpus import Corpus, collate
from lightning.pytorch.callbacks import (
    Callback,
    EarlyStopping,
    LearningRateMonitor,
    ModelCheckpoint,
    RichProgressBar,
    TQDMProgressBar,
)
from lightning.pytorch.loggers import CSVLogger
from lightning.pytorch.strategies import DDPStrategy
from tiny import TinyLM


class LitLM(L.LightningModule):
    """The model and its steps."""

    def __init__(self, lr=3e-3, width=32, pace=0.02):
        super().__init__()
        self.save_hyperparameters()
        self.net = TinyLM(width=width)

    def training_step(self, batch, index):
        inputs, targets = hooks.call("batch", batch, step=self.global_step)
        time.sleep(self.hparams.pace)
        hooks.call("forward", step=self.global_step, model=self)
        loss = torch.nn.functional.cross_entropy(self.net(inputs).flatten(0, 1), targets.flatten())
        loss = hooks.call("loss", loss)
        self.log("train_loss", loss, prog_bar=True)
        return loss

    def validation_step(self, batch, index):
        inputs, targets = batch
        loss = torch.nn.functional.cross_entropy(self.net(inputs).flatten(0, 1), targets.flatten())
        loss = hooks.call("val_loss", loss)
        self.log("val_loss", loss, prog_bar=True, sync_dist=True)

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=self.hparams.lr)
        return {"optimizer": optimizer, "lr_scheduler": torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 200)}


class Points(Callback):
    """Calls the hooks."""

    def setup(self, trainer, module, stage):
        hooks.call("model")

    def on_train_batch_start(self, trainer, module, batch, index):
        hooks.call("step", step=trainer.global_step, trainer=trainer, model=module)

    def on_train_batch_end(self, trainer, module, outputs, batch, index):
        hooks.call("stepped", step=trainer.global_step, trainer=trainer)

    def on_validation_start(self, trainer, module):
        hooks.call("eval", trainer=trainer)

    def on_save_checkpoint(self, trainer, module, checkpoint):
        hooks.call("save", checkpoint, trainer=trainer)

    def on_load_checkpoint(self, trainer, module, checkpoint):
        hooks.call("load", checkpoint)

    def on_train_end(self, trainer, module):
        hooks.call("end", trainer=trainer)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--width", type=int, default=32)
    parser.add_argument("--pace", type=float, default=0.02)
    parser.add_argument("--bar", default="tqdm", choices=["tqdm", "rich", "none"])
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--resume", default=None)
    parser.add_argument("--save-every", type=int, default=20)
    parser.add_argument("--eval-every", type=int, default=20)
    parser.add_argument("--patience", type=int, default=0)
    parser.add_argument("--timeout", type=float, default=8)
    parser.add_argument("--devices", type=int, default=2)
    parser.add_argument("--shards", type=int, default=4)
    parser.add_argument("--precision", default="32-true")
    parser.add_argument("--detect-nan", action="store_true")
    parser.add_argument("--sanity", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(1)
    hooks.call("start")
    L.seed_everything(42)
    hooks.call("data")
    corpus = Corpus("data", args.shards)
    loader = torch.utils.data.DataLoader(
        corpus, 4, collate_fn=collate, num_workers=args.workers, shuffle=True, drop_last=True
    )
    valid = torch.utils.data.DataLoader(torch.utils.data.Subset(corpus, range(32)), 4, collate_fn=collate)
    bar = {"tqdm": [TQDMProgressBar(refresh_rate=5)], "rich": [RichProgressBar(refresh_rate=5)], "none": []}[args.bar]
    keep = ModelCheckpoint("checkpoints", every_n_train_steps=args.save_every, save_top_k=-1, filename="{step}")
    callbacks = [Points(), keep, LearningRateMonitor("step"), *bar]
    if args.patience:
        callbacks.append(EarlyStopping("val_loss", patience=args.patience, verbose=True, check_finite=True))
    strategy = DDPStrategy(process_group_backend="gloo", timeout=timedelta(seconds=args.timeout))
    hooks.call("rendezvous")
    trainer = L.Trainer(
        accelerator="cpu",
        devices=args.devices,
        strategy=strategy,
        max_steps=args.steps,
        callbacks=callbacks,
        logger=CSVLogger("csv"),
        val_check_interval=args.eval_every,
        check_val_every_n_epoch=None,
        log_every_n_steps=5,
        enable_progress_bar=args.bar != "none",
        num_sanity_val_steps=args.sanity,
        precision=args.precision,
        detect_anomaly=args.detect_nan,
    )
    trainer.fit(LitLM(width=args.width, pace=args.pace), loader, valid, ckpt_path=args.resume)
    hooks.call("bye", trainer=trainer)


if __name__ == "__main__":
    main()
