"""A corpus of tokens in shards of .npy files, read by index."""

import logging
from pathlib import Path

import hooks
import numpy as np
import torch

log = logging.getLogger("corpus")


class Corpus(torch.utils.data.Dataset):
    """Rows of all shards; each shard is opened when it is first read."""

    def __init__(self, folder, shards=4, rows=64):
        self.folder, self.shards, self.rows, self.open = Path(folder), shards, rows, {}

    def __len__(self):
        return self.shards * self.rows

    def shard(self, number):
        if number not in self.open:
            self.open[number] = np.load(self.folder / f"shard-{number:04d}.npy")
        return self.open[number]

    def __getitem__(self, index):
        row = self.shard(index // self.rows)[index % self.rows]
        row = torch.from_numpy(row)
        return hooks.call("sample", row, index=index)


def collate(rows):
    """A batch: inputs and targets."""
    rows = hooks.call("collate", rows)
    batch = torch.stack(rows)
    return batch[:, :-1], batch[:, 1:]
