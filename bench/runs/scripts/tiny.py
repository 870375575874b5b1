"""A tiny language model, and what the scripts share."""

import argparse

import torch
from torch import nn


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width)

    def forward(self, x):
        return x + self.down(torch.nn.functional.gelu(self.up(self.norm(x))))


class TinyLM(nn.Module):
    def __init__(self, vocabulary=64, width=32, layers=2):
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(layers))
        self.head = nn.Linear(width, vocabulary)

    def forward(self, tokens):
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def arguments(parser=None):
    """The options that all scripts have."""
    parser = parser or argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--batch-size", type=int, default=4)
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--warmup", type=int, default=10)
    parser.add_argument("--width", type=int, default=32)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--data", default="data")
    parser.add_argument("--shards", type=int, default=4)
    parser.add_argument("--out", default="checkpoints")
    parser.add_argument("--resume", default="")
    parser.add_argument("--log-every", type=int, default=5)
    parser.add_argument("--save-every", type=int, default=25)
    parser.add_argument("--eval-every", type=int, default=0)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--loader-timeout", type=float, default=0)
    parser.add_argument("--timeout", type=float, default=6)
    parser.add_argument("--style", default="logging")
    parser.add_argument("--all-ranks", action="store_true")
    parser.add_argument("--pace", type=float, default=0.03, help="seconds of compute that a step takes at least")
    parser.add_argument("--local_rank", "--local-rank", type=int, default=0)
    return parser


def rate(args, step):
    """The learning rate: warm-up, then linear decay."""
    if step < args.warmup:
        return args.lr * (step + 1) / args.warmup
    return args.lr * max(0.05, 1 - (step - args.warmup) / max(1, args.steps - args.warmup))
