"""Hugging Face folders that tests make."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import decoders, models, pre_tokenizers, trainers

TRAINING = ["the rain in the north and the wind on the moor, hear the rain <|im_end|> it's 1234 Київ"] * 20


def train_tokenizer(folder: Path, **files: dict[str, Any]) -> tokenizers.Tokenizer:
    """Writes a tokenizer.json with byte-level BPE, and the small JSON files that are given by their stems.

    Returns:
      the library's own tokenizer: the control tokens are `<|endoftext|>` and `<|im_end|>`.
    """
    engine = tokenizers.Tokenizer(models.BPE())
    engine.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    engine.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=300, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    engine.train_from_iterator(TRAINING, trainer)
    engine.add_special_tokens(["<|endoftext|>", "<|im_end|>"])
    folder.mkdir(exist_ok=True)
    engine.save(str(folder / "tokenizer.json"))
    for stem, content in files.items():
        (folder / f"{stem}.json").write_text(json.dumps(content))
    return engine
