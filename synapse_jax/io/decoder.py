"""Tokens to text as they come, without cutting a character."""

from __future__ import annotations

import codecs
from collections.abc import Callable, Iterable


class Decoder:
    """Text of a growing list of tokens. What it gave, joined, is what decoding all tokens at once gives.

    Args:
      decode_bytes: Bytes of tokens, as `Tokenizer.decode_bytes`.
    """

    def __init__(self, decode_bytes: Callable[[Iterable[int]], bytes]):
        self._decode_bytes = decode_bytes
        self._utf8 = codecs.getincrementaldecoder("utf-8")("replace")

    def feed(self, ids: Iterable[int]) -> str:
        """The text that more tokens complete; bytes of an unfinished character wait for the next call.

        Raises:
          InputError: an id outside the vocabulary; nothing of this call is taken then.
        """
        return self._utf8.decode(self._decode_bytes(ids))

    def finish(self) -> str:
        """What waits: U+FFFD for a character that never ended, else nothing. The decoder then starts anew."""
        text = self._utf8.decode(b"", final=True)
        self._utf8.reset()
        return text
