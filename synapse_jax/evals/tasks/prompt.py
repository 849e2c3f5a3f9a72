"""Text to the tokens of a prompt, with the model's chat template where it has one."""

from __future__ import annotations

import dataclasses
import datetime

from synapse_jax.errors import RunError
from synapse_jax.io.chat import ChatTemplate, RenderLimits, encode_chat
from synapse_jax.io.tokenizer import Tokenizer


@dataclasses.dataclass(frozen=True)
class PromptWriter:
    """Makes prompts for one model."""

    tokenizer: Tokenizer
    """The model's."""
    template: ChatTemplate | None
    """Around the question, which is then what a user says; None: the text is continued as it is."""
    now: datetime.datetime
    """The time that the template sees."""

    def encode(self, text: str, lead_in: str) -> tuple[int, ...]:
        """Token IDs of a prompt that ends with the beginning of its answer.

        Args:
            text: instruction, text and question.
            lead_in: the beginning of the answer; white space before it falls away in a template.

        Raises:
            InputError: the template refuses the text.
        """
        tokenizer = self.tokenizer
        if self.template is None:
            begin = [tokenizer.bos_id] if tokenizer.add_bos and tokenizer.bos_id is not None else []
            ids = [*begin, *tokenizer.encode(text + lead_in, add_special=False)]
        else:
            limits = RenderLimits(output_chars=RenderLimits.output_chars + 2 * len(text))
            messages = [{"role": "user", "content": text}]
            chat = encode_chat(tokenizer, self.template, messages, now=self.now, limits=limits)
            ids = [*chat.ids, *tokenizer.encode(lead_in.lstrip(), add_special=False)]
        begins = next((i for i, token in enumerate(ids) if token != tokenizer.bos_id), len(ids))
        if begins > 1 or begins < tokenizer.add_bos:
            raise RunError(f"a prompt begins with {begins} BOS tokens")
        return tuple(ids)
