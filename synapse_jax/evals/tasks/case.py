"""One case: its prompt in tokens, within the length, with the facts where they were asked for."""

from __future__ import annotations

import dataclasses
import re

import numpy as np

from synapse_jax.errors import InputError
from synapse_jax.evals.tasks.draws import Draws
from synapse_jax.evals.tasks.filler import Filler, byte_lengths
from synapse_jax.evals.tasks.prompt import PromptWriter
from synapse_jax.evals.tasks.task import Facts, Task
from synapse_jax.spec.digest import sha256_tokens


@dataclasses.dataclass(frozen=True)
class CaseName:
    """What a case is called, and all that it follows from beside the haystack and the vocabulary."""

    task: str
    length: int
    """Most tokens of prompt and answer together."""
    depth: float | None
    """Where the answer lies, a fraction of the text's tokens; None for tasks without a depth."""
    sample: int
    """Index among the cases of one task, length and depth."""

    def __str__(self) -> str:
        depth = "" if self.depth is None else f", depth {self.depth:g}"
        return f"{self.task}, length {self.length}{depth}, case {self.sample}"


@dataclasses.dataclass(frozen=True)
class Case:
    """A prompt whose right answer is known."""

    name: CaseName
    ids: tuple[int, ...]
    """The prompt."""
    answer_tokens: int
    """Most tokens of the answer; with the prompt they are at most the length."""
    answers: tuple[str, ...]
    """The number, or all the names, that are asked for."""
    decoys: tuple[str, ...]
    """Values that distractors give."""
    planted: tuple[int, ...]
    """Index of the first token of each statement, in the order of the task; that of the one which is asked
    for comes first where a task has one."""
    filler: tuple[int, int]
    """Tokens of the text, without the statements, and of its longest sentence."""
    depth: float | None
    """Tokens of the text before the statement that is asked for, as a share of all; None without a depth."""

    @property
    def sha256(self) -> str:
        """Digest of the prompt's tokens."""
        return sha256_tokens(self.ids)


def build_case(
    name: CaseName, task: Task, seed: int, filler: Filler, writer: PromptWriter, answer_tokens: int
) -> Case:
    """Writes a case. The same arguments give the same tokens in every process.

    Raises:
        InputError: the length does not hold the question, its answer and a sentence a statement; or the
            haystack is shorter than the length.
    """
    draws = Draws(f"{seed}/{name.task}/{name.length}/{name.depth}/{name.sample}", filler.haystack.folded)
    facts = task.draw(draws, name.depth)
    room = name.length - answer_tokens
    bare = len(writer.encode(*_text(facts, filler, 0)))
    least = bare + int(filler.ends_N[min(len(facts.statements), len(filler.ends_N) - 1)])
    if least > room:
        raise InputError(
            f"length {name.length} is too short for {name.task}: its prompt has at least {least} tokens, and "
            f"its answer {answer_tokens}"
        )
    sentences = filler.fitting(room - bare)
    while True:
        ids = writer.encode(*_text(facts, filler, sentences))
        if len(ids) <= room:
            break
        # Tokens may join otherwise than in the haystack as a whole; every turn has fewer sentences.
        fewer = filler.fitting(int(filler.ends_N[sentences]) - (len(ids) - room))
        sentences = min(fewer, sentences - 1)
        if sentences < len(facts.statements):
            raise InputError(f"length {name.length} is too short for {name.task} on this haystack")
    return _located(name, facts, filler, writer, ids, sentences, answer_tokens)


def _text(facts: Facts, filler: Filler, sentences: int) -> tuple[str, str]:
    """The text of a prompt with so many sentences of the haystack, and the beginning of its answer."""
    before = [[] for _ in range(sentences + 1)]
    for statement, place in zip(facts.statements, facts.places, strict=True):
        before[filler.sentence_at(place, sentences)].append(statement)
    parts, last = [], "\n"
    for index in range(sentences + 1):
        # A statement is a line between lines, and a sentence within one.
        gap = "\n" if last.endswith("\n") else " "
        parts += [statement + gap for statement in before[index]]
        if index < sentences:
            last = filler.sentences[index]
            parts.append(last)
    return f"{facts.before}{''.join(parts).strip()}{facts.question}", facts.lead_in


def _located(
    name: CaseName,
    facts: Facts,
    filler: Filler,
    writer: PromptWriter,
    ids: tuple[int, ...],
    sentences: int,
    answer_tokens: int,
) -> Case:
    """The case, with what was planted looked for in its tokens.

    Raises:
        InputError: the tokens do not hold each statement once: a template changed the text.
    """
    data = writer.tokenizer.decode_bytes(ids)
    ends_T = np.cumsum(byte_lengths(writer.tokenizer, ids))

    def token_at(offset: int) -> int:
        return int(np.searchsorted(ends_T, offset, "right"))

    offsets = [_only(data, statement, name) for statement in facts.statements]
    spans = [
        (token_at(offset), token_at(offset + len(statement.encode())))
        for offset, statement in zip(offsets, facts.statements, strict=True)
    ]
    begin = token_at(_only(data, facts.before.strip(), name) + len(facts.before.encode()))
    total = token_at(_only(data, facts.question.strip(), name)) - begin - sum(b - a for a, b in spans)
    depth = None
    if facts.asked is not None:
        at = spans[facts.asked][0]
        depth = (at - begin - sum(b - a for a, b in spans if a < at)) / total
    longest = int(np.diff(filler.ends_N[: sentences + 1]).max())
    planted = tuple(first for first, _ in spans)
    return Case(name, ids, answer_tokens, facts.answers, facts.decoys, planted, (total, longest), depth)


def _only(data: bytes, text: str, name: CaseName) -> int:
    """Offset in decoded tokens of a text that they hold once."""
    found = [match.start() for match in re.finditer(re.escape(text.encode()), data)]
    if len(found) != 1:
        raise InputError(
            f"{name}: {text!r} is {len(found)} times in the prompt's tokens, once was meant: the chat "
            "template changes what the user says"
        )
    return found[0]
