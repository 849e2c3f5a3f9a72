"""Thousands of broken headers, the same in every run: a clean refusal or a clean file, nothing else."""

from __future__ import annotations

import struct
import time
import tracemalloc

import numpy as np
import pytest

from synapse_jax.cli.inspect import describe
from synapse_jax.errors import InputError
from synapse_jax.io.gguf import open_gguf
from synapse_jax.io.gguf_header import parse_header
from synapse_jax.io.model_file import open_model_file
from tests.hostile_gguf import small_parts, tiny_file

NUMBERS = (0, 1, 2, 3, 7, 8, 31, 63, 64, 255, 2**16, 2**21, 2**24, 2**26, 2**31, 2**32 - 1)
LONG_NUMBERS = NUMBERS + (2**32, 2**40, 2**61, 2**62, 2**63 - 1, 2**63, 2**64 - 32, 2**64 - 8, 2**64 - 1)
MOST_BYTES = 20_000_000
"""What reading a small file may take: far less than any count in it asks for."""


def overwritten(content: bytes):
    """Every place of the content overwritten with every number, of four bytes and of eight."""
    for at in range(len(content)):
        for size, numbers, letter in ((4, NUMBERS, "I"), (8, LONG_NUMBERS, "Q")):
            for number in numbers:
                yield content[:at] + struct.pack(f"<{letter}", number) + content[at + size :]


def damaged(content: bytes, header: int, count: int, seed: int):
    """The content with a few of its first `header` bytes changed, taken out, doubled or put in."""
    random = np.random.RandomState(seed)
    for _ in range(count):
        out = bytearray(content)
        for _ in range(random.randint(1, 4)):
            at, length = random.randint(min(header, len(out))), random.randint(1, 17)
            how = random.randint(24)
            if how < 6:
                out[at] ^= 1 << random.randint(8)
            elif how < 10:
                out[at : at + length] = random.bytes(length)
            elif how < 13:
                del out[at : at + length]
            elif how < 16:
                out[at:at] = out[at : at + length]
            elif how < 23:
                out[at : at + 8] = struct.pack("<Q", LONG_NUMBERS[random.randint(len(LONG_NUMBERS))])
            else:
                del out[1 + random.randint(len(out)) :]
        yield bytes(out)


def check(work):
    """Runs `work`; returns whether it was refused. Asserts how, in what time and memory."""
    tracemalloc.reset_peak()
    start, before = time.process_time(), tracemalloc.get_traced_memory()[0]
    try:
        work()
        refused = False
    except InputError as error:
        message = str(error)
        assert message.startswith("x: ") or "damaged.gguf: " in message, message
        assert message.isprintable() and len(message) < 1000, message
        refused = True
    assert time.process_time() - start < 2
    assert tracemalloc.get_traced_memory()[1] - before < MOST_BYTES
    return refused


@pytest.fixture(autouse=True)
def traced():
    tracemalloc.start()
    yield
    tracemalloc.stop()


def test_every_number_everywhere():
    content = b"".join(small_parts())
    header = len(content) - 128 - 34
    tail = content[header:]
    results = [
        check(lambda data=data: parse_header(data + tail, "x")) for data in overwritten(content[:header])
    ]
    # Names, texts and numbers of no use may be anything.
    assert 0.05 < np.mean(results) < 0.99 and len(results) > 10_000


def test_damaged_headers():
    content = b"".join(small_parts())
    header = len(content) - 128 - 34
    results = [
        check(lambda data=data: parse_header(data, "x")) for data in damaged(content, header, 4000, seed=1)
    ]
    assert 0.5 < np.mean(results) < 0.99


def test_damaged_models_from_header_to_tokenizer(tmp_path):
    content = tiny_file(context=64, layers=1)
    path = tmp_path / "damaged.gguf"
    path.write_bytes(content)
    with open_gguf(path) as file:
        header = min(info.offset for info in file.tensors.values())
    shown = 0

    def work():
        nonlocal shown
        with open_model_file(path, weights=False) as model:
            result = describe(model)
            assert all(line.isprintable() for line in result["problems"])
            for name, info in model.gguf.tensors.items():
                if info.type.readable:
                    model.gguf.read(name)
            shown += 1

    results = []
    for data in damaged(content, header, 1500, seed=2):
        path.write_bytes(data)
        results.append(check(work))
    assert 0.3 < np.mean(results) < 0.99 and shown > 20
