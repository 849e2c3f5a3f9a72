"""The sentences that pass-key prompts are made of. They are locked: another word is another form."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class Form:
    """One way to hide a number and to ask for it. Every part but the prefix begins with a space."""

    prefix: str
    """Says that there is a key."""
    filler: tuple[str, ...]
    """What is repeated, in this order, from the first on."""
    key: str
    """Gives the key: `{key}` stands for it."""
    question: str
    """Asks for the key; the answer goes on from here."""


PLAIN = Form(
    prefix="One line of the text below gives a pass key. Keep it in mind: it is asked for at the end.",
    filler=(
        " The river turns slowly around the old mill.",
        " A grey cat sleeps on the warm wall.",
        " Rain falls on the roofs of the village.",
        " The baker opens his shop before the sun is up.",
        " Two boats lie in the harbour.",
        " The wind moves the leaves of the tall trees.",
        " Children walk home along the quiet street.",
        " There is snow on the mountains until spring.",
    ),
    key=" The pass key is {key}. Keep it in mind. The pass key is {key}.",
    question=" What is the pass key? The pass key is",
)
LLAMA_CPP = Form(
    prefix=(
        "There is an important info hidden inside a lot of irrelevant text. Find it and memorize them. I "
        "will quiz you about the important information there."
    ),
    filler=(" The grass is green. The sky is blue. The sun is yellow. Here we go. There and back again.",),
    key=" The pass key is {key}. Remember it. {key} is the pass key.",
    question=" What is the pass key? The pass key is",
)
"""The prompt of llama.cpp's `llama-passkey`, which has 250 repeats by default; the words are those of
Mohtashami and Jaggi, arXiv 2305.16300."""

FORMS = {"plain": PLAIN, "llama.cpp": LLAMA_CPP}
"""Forms by name."""
