"""Writes what cls.py reads: texts with labels, and a tokenizer of whole words."""

import json
from pathlib import Path

WORDS = [
    "the",
    "job",
    "ran",
    "well",
    "and",
    "then",
    "it",
    "stopped",
    "with",
    "an",
    "error",
    "while",
    "we",
    "looked",
    "at",
    "a",
    "log",
    "of",
    "some",
    "node",
    "or",
    "other",
]


def write(texts=None, rows=200):
    """Write texts.jsonl and tokenizer/."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    texts = texts or [" ".join(WORDS[(number * 3 + part) % len(WORDS)] for part in range(8)) for number in range(16)]
    lines = [json.dumps({"text": texts[number % len(texts)], "label": number % 2}) for number in range(rows)]
    Path("texts.jsonl").write_text("\n".join(lines) + "\n")
    names = ["[PAD]", "[UNK]", *sorted({word for text in texts for word in text.split()})]
    words = Tokenizer(models.WordLevel({name: number for number, name in enumerate(names)}, unk_token="[UNK]"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    PreTrainedTokenizerFast(tokenizer_object=words, pad_token="[PAD]", unk_token="[UNK]").save_pretrained("tokenizer")
