"""config.json of a Hugging Face folder: fields with their types, and which of them were read."""

from __future__ import annotations

import math
import pathlib
from typing import Any

from synapse_jax.errors import InputError
from synapse_jax.io.folder_files import read_object
from synapse_jax.io.quoting import quote, shown_path


class Config:
    """Fields of config.json, or of an object in it. A field that is null counts as absent.

    Args:
      shown: the file, for messages.
      values: its fields.
      prefix: put before a field's name in messages: `rope_scaling.` for an object of that name.
    """

    def __init__(self, shown: str, values: dict[str, Any], prefix: str = ""):
        self.shown = shown
        self._values = values
        self._prefix = prefix
        self._read: set[str] = set()

    def fail(self, field: str, problem: str) -> InputError:
        """An InputError that names the file and a field; the caller raises it."""
        return InputError(f"{self.shown}: {self._prefix}{field}: {problem}")

    def get(self, field: str) -> Any:
        """A field's value, None where it is absent; it counts as read."""
        self._read.add(field)
        return self._values.get(field)

    def __contains__(self, field: str) -> bool:
        """Whether a field is there, null or not."""
        return field in self._values

    def has(self, field: str) -> bool:
        """Whether a field is there and not null."""
        return self._values.get(field) is not None

    def skip(self, *fields: str) -> None:
        """Counts fields as read that change nothing here."""
        self._read.update(fields)

    def unread(self) -> list[str]:
        """Fields that are there and that nothing has read."""
        return [field for field in self._values if field not in self._read and self.has(field)]

    def require(self, field: str) -> Any:
        """A field's value; InputError if it is absent or null."""
        value = self.get(field)
        if value is None:
            raise self.fail(field, "is missing" if field not in self._values else "is null")
        return value

    def positive(self, field: str, default: int | None = None, limit: int = (1 << 31) - 1) -> int:
        """A positive integer up to a limit; InputError for another value, and for none without a default."""
        if default is not None and not self.has(field):
            self.get(field)
            return default
        value = self.require(field)
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise self.fail(field, f"is {quote(value)}, not a positive integer")
        if value > limit:
            raise self.fail(field, f"is {_short(value)}, at most {limit} is allowed")
        return value

    def number(self, field: str, default: float | None = None) -> float:
        """A finite number; InputError for another value, and for none without a default."""
        if default is not None and not self.has(field):
            self.get(field)
            return default
        value = self.require(field)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.fail(field, f"is {quote(value)}, not a number")
        if abs(value) > 1e300 or not math.isfinite(value):
            raise self.fail(field, f"is {_short(value)}, not a finite number that can be used")
        return float(value)

    def numbers(self, field: str, count: int) -> tuple[float, ...]:
        """A list of finite numbers; InputError for another value or length."""
        value = self.require(field)
        if not isinstance(value, list):
            raise self.fail(field, f"is {quote(value)}, not a list of numbers")
        if len(value) != count:
            raise self.fail(field, f"has {len(value)} numbers, there are {count} frequencies")
        items = Config(self.shown, {f"{field}[{i}]": item for i, item in enumerate(value)}, self._prefix)
        return tuple(items.number(f"{field}[{i}]") for i in range(count))

    def flag(self, field: str, default: bool) -> bool:
        """True or false; InputError for another value."""
        value = self.get(field)
        if value is not None and not isinstance(value, bool):
            raise self.fail(field, f"is {quote(value)}, not true or false")
        return default if value is None else value

    def text(self, field: str) -> str | None:
        """A string, None where it is absent; InputError for another value."""
        value = self.get(field)
        if value is not None and not isinstance(value, str):
            raise self.fail(field, f"is {quote(value)}, not a string")
        return value

    def section(self, field: str) -> Config | None:
        """An object, None where it is absent; InputError for another value."""
        value = self.get(field)
        if value is None:
            return None
        if not isinstance(value, dict):
            raise self.fail(field, f"is {quote(value)}, not an object")
        return Config(self.shown, value, f"{self._prefix}{field}.")

    def same_values(self, other: Config) -> bool:
        """Whether two objects hold the same."""
        return self._values == other._values


def read_config(folder: pathlib.Path) -> Config:
    """The configuration of a folder.

    Raises:
      InputError: there is no config.json, or it is not a JSON object.
    """
    path = folder / "config.json"
    return Config(shown_path(path), read_object(path))


def _short(value: float) -> str:
    """A number that may have thousands of digits."""
    return (
        str(value) if isinstance(value, float) or abs(value) < 1 << 128 else f"of {value.bit_length()} bits"
    )
