"""The tokens whose keys and values a session holds, and what was scored of them. No jax."""

from __future__ import annotations

import numpy as np


class RememberedTokens:
    """Token IDs from position 0 up, with NLL and greedy token beside the positions that were scored.

    One session remembers them, whose weights and profile never change, so the token IDs are the whole key.
    """

    def __init__(self):
        self.forget()

    def forget(self) -> None:
        """Remembers nothing."""
        none = np.zeros(0, np.int32)
        self._set(none, none.astype(np.bool_), none.astype(np.float32), none)

    def __len__(self) -> int:
        return len(self._ids)

    def common(self, ids: np.ndarray) -> int:
        """Length of the longest prefix that `ids`, int32 [n], have in common with the remembered ones."""
        length = min(len(ids), len(self))
        different = np.flatnonzero(self._ids[:length] != ids[:length])
        return int(different[0]) if different.size else length

    def keep(self, length: int) -> None:
        """Forgets the tokens from `length` on."""
        self._set(self._ids[:length], self._generated[:length], self._nll[:length], self._greedy[:length])

    def add(self, ids: np.ndarray, *, generated: bool = False) -> None:
        """Remembers further tokens, int32 [n]; `generated` ones were evaluated a row at a time."""
        self._set(
            np.concatenate([self._ids, ids]).astype(np.int32),
            np.concatenate([self._generated, np.full(len(ids), generated)]),
            np.concatenate([self._nll, np.full(len(ids), np.nan, np.float32)]),
            np.concatenate([self._greedy, np.zeros(len(ids), np.int32)]),
        )

    def add_scores(self, start: int, nll: np.ndarray, greedy: np.ndarray) -> None:
        """Remembers NLL and greedy token of remembered positions `start` … `start` + n − 1."""
        self._nll[start : start + len(nll)] = nll
        self._greedy[start : start + len(nll)] = greedy

    def read_scores(self, ids: np.ndarray, start: int, nll: np.ndarray, greedy: np.ndarray) -> int:
        """Fills in what is known of positions from `start` on of a text that begins like this one.

        Args:
            ids: int32 [n], the text.
            start: position of the first entry of `nll` and `greedy`.
            nll: float32 [m], filled as far as the scores are known without a gap.
            greedy: int32 [m], likewise.

        Returns:
            How many entries were filled.
        """
        known = self._nll[start : min(self.common(ids), start + len(nll))]
        missing = np.flatnonzero(np.isnan(known))
        count = int(missing[0]) if missing.size else len(known)
        nll[:count], greedy[:count] = known[:count], self._greedy[start : start + count]
        return count

    def generated_before(self, length: int) -> int:
        """How many of the first `length` tokens were generated."""
        return int(self._generated[:length].sum())

    def exact(self, length: int) -> int:
        """How many of the first `length` tokens come before the first generated one."""
        generated = np.flatnonzero(self._generated[:length])
        return int(generated[0]) if generated.size else min(length, len(self))

    def _set(self, ids: np.ndarray, generated: np.ndarray, nll: np.ndarray, greedy: np.ndarray) -> None:
        """All of them at once: an interruption leaves them of one length."""
        self._ids, self._generated, self._nll, self._greedy = ids, generated, nll, greedy
