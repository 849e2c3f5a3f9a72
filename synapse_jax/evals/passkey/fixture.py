"""A form of pass-key prompts in the tokens of a vocabulary."""

from __future__ import annotations

import bisect
import dataclasses
import itertools

from synapse_jax.errors import InputError
from synapse_jax.evals.passkey.form import FORMS
from synapse_jax.evals.tasks.draws import Draws
from synapse_jax.io.tokenizer import Tokenizer
from synapse_jax.spec.digest import canonical_json, sha256_text, sha256_tokens

SAMPLE_KEY = "12345"
"""The key whose sentence is part of a fixture's digest."""
KEY_DIGITS = 5
BEFORE = "."
"""What every part but the prefix follows: all of them end so, or go on after a question mark."""


@dataclasses.dataclass(frozen=True)
class PasskeyPrompt:
    """One prompt."""

    length: int
    """Most tokens of prompt and answer together that were asked for."""
    depth: float
    """Where the key was asked to be: 0 before all filler, 1 after it."""
    key: str
    """The number to find."""
    ids: tuple[int, ...]
    """Token IDs, BOS included where the vocabulary adds one."""
    fillers: int
    """Pieces of filler."""
    key_at: int
    """Index of the first token of the sentence that gives the key."""
    depth_reached: float
    """Share of the filler's tokens that lie before the key."""

    @property
    def sha256(self) -> str:
        """Digest of the token IDs."""
        return sha256_tokens(self.ids)


class Fixture:
    """The parts of prompts as token IDs, each encoded once: a prompt is nothing but these in a row.

    Args:
        form: a key of `FORMS`.
        tokenizer: the model's.
        source: the model, for messages.

    Raises:
        InputError: the vocabulary joins the end of one part with the beginning of another, so that the tokens
            of the parts are not those of the text.
    """

    def __init__(self, form: str, tokenizer: Tokenizer, source: str):
        self.form, self._tokenizer, self._source = form, tokenizer, source
        self._text = FORMS[form]
        bos = [tokenizer.bos_id] if tokenizer.add_bos and tokenizer.bos_id is not None else []
        self.prefix = [*bos, *self._encode(self._text.prefix)]
        self.filler = [self._part(text) for text in self._text.filler]
        self.question = self._part(self._text.question)
        self._check()

    @property
    def sha256(self) -> str:
        """Digest of the form's words and of their tokens: what locks the fixture."""
        parts = [self.prefix, *self.filler, self.key_sentence(SAMPLE_KEY), self.question]
        return sha256_text(canonical_json({"text": self._text, "tokens": parts}))

    def key_sentence(self, key: str) -> list[int]:
        """Token IDs of the sentence that gives a key."""
        return self._part(self._text.key.format(key=key))

    def prompt(self, length: int, depth: float, answer_tokens: int, seed: int) -> PasskeyPrompt:
        """The longest prompt that leaves room for the answer.

        Args:
            length: most tokens of prompt and answer together.
            depth: 0 … 1. The key comes after the most filler that is no larger a share of all of it.
            answer_tokens: tokens of the answer.
            seed: of the key, beside length and depth.

        Raises:
            InputError: there is no room for a single piece of filler.
        """
        key = Draws(f"{seed}/passkey/{length}/{depth!r}").number(KEY_DIGITS)
        sentence = self.key_sentence(key)
        fixed = len(self.prefix) + len(sentence) + len(self.question) + answer_tokens
        room, sizes = length - fixed, [len(part) for part in self.filler]
        if room < sizes[0]:
            raise InputError(
                f"length {length}: a prompt with one piece of filler and {answer_tokens} tokens for the "
                f"answer have {fixed + sizes[0]}"
            )
        rounds, rest = divmod(room, sum(sizes))
        ends = list(itertools.accumulate(sizes * rounds + sizes, initial=0))
        count = rounds * len(sizes) + sum(end <= rest for end in itertools.accumulate(sizes))
        before = bisect.bisect_right(ends[: count + 1], depth * ends[count]) - 1
        filler = [part for _, part in zip(range(count), itertools.cycle(self.filler), strict=False)]
        parts = [self.prefix, *filler[:before], sentence, *filler[before:], self.question]
        ids = tuple(itertools.chain.from_iterable(parts))
        reached = ends[before] / ends[count]
        return PasskeyPrompt(length, depth, key, ids, count, len(self.prefix) + ends[before], reached)

    def _encode(self, text: str) -> list[int]:
        return self._tokenizer.encode(text, add_special=False)

    def _part(self, text: str) -> list[int]:
        """What a part adds to a text: some vocabularies put a space before what comes first."""
        return self._encode(BEFORE + text)[len(self._encode(BEFORE)) :]

    def _check(self) -> None:
        key = self._text.key.format(key=SAMPLE_KEY)
        middle = [*self._text.filler, key]
        for first, then in itertools.product([self._text.prefix, *middle], [*middle, self._text.question]):
            if self._encode(first + then) != self._encode(first) + self._part(then):
                raise InputError(
                    f"{self._source}: the vocabulary does not cut pass-key prompts at their sentences: "
                    f"{first[-12:]!r} and {then[:12]!r} share a token"
                )
