"""What tests add to the gguf package's writer."""

from __future__ import annotations

from typing import Any

import gguf
import numpy as np


def add_value(writer: gguf.GGUFWriter, name: str, value: Any) -> None:
    """Adds a key: ints as uint32, floats as float32, a numpy scalar as its own type, lists as arrays."""
    kinds = gguf.GGUFValueType
    if isinstance(value, (list, tuple)):
        writer.add_array(name, value)
    elif isinstance(value, np.generic):
        writer.add_key_value(name, value.item(), kinds[value.dtype.name.upper()])
    else:
        kind = {bool: kinds.BOOL, int: kinds.UINT32, float: kinds.FLOAT32, str: kinds.STRING}[type(value)]
        writer.add_key_value(name, value, kind)


def finish(writer: gguf.GGUFWriter) -> None:
    """Writes the file, or the files of a split one, and closes it."""
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
