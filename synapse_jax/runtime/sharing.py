"""One prompt for several attention policies of decoded tokens."""

from __future__ import annotations

import copy
import dataclasses

from synapse_jax.runtime.checks import check_sharing
from synapse_jax.runtime.session import Session


def with_attention(session: Session, attention: str) -> Session:
    """A session of the same weights under another policy of decoded tokens, which holds the same prompt.

    Prompts attend densely under all of them, so one evaluation serves many policies. The pages are copied:
    neither session changes the other.

    Raises:
        InputError: a policy that keeps other pages than the session's.
        RunError: there is no memory for a copy.
    """
    check_sharing(session.profile.attention, attention)
    profile = dataclasses.replace(session.profile, attention=attention)
    other = Session(session._model, profile, ready=[], sharing=session)
    other.cache.adopt(session.cache)
    other._prefix.tokens = copy.deepcopy(session._prefix.tokens)
    return other
