"""The cache of compiled graphs: the same bits, whatever happens to its files (case 38)."""

from __future__ import annotations

import errno
import logging
import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from synapse_jax.graph import store
from synapse_jax.graph.compile import GraphCache, lower_on
from synapse_jax.graph.entry import Entry
from synapse_jax.graph.fingerprint import executable_identity
from synapse_jax.ir.build import build
from synapse_jax.kv.pages import abstract_pages
from synapse_jax.runtime import packing
from synapse_jax.runtime.params import load_params
from synapse_jax.spec.runtime import RuntimeProfile, resolve
from tests.paging import new_sequence
from tests.tiny import Tiny
from tests.tiny_model import TinyModel

MODEL = TinyModel(Tiny(context=256, layers=1))
ENTRY = Entry("logits", 32, 256)
IDS = np.arange(32, dtype=np.int32)


@pytest.fixture(scope="module")
def ir():
    return build(MODEL.spec, resolve(RuntimeProfile(), MODEL.spec))


@pytest.fixture(scope="module")
def expected(ir):
    """The logits of a graph that was compiled here and now."""
    return logits(ir, GraphCache().compile(ir, ENTRY, device()))


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder of graphs, not there yet; nothing has been warned of."""
    monkeypatch.setattr(store, "_warned", set())
    monkeypatch.setenv(store.VARIABLE, str(tmp_path / "graphs"))
    return tmp_path / "graphs"


@pytest.fixture
def warnings(caplog):
    caplog.set_level(logging.WARNING, "synapse_jax")
    return lambda: [record.getMessage() for record in caplog.records]


def device():
    return jax.devices("cpu")[0]


def logits(ir, compiled):
    pages = tuple(jnp.zeros(a.shape, a.dtype) for a in abstract_pages(ir.spec, ir.profile, ENTRY.capacity))
    sequence = new_sequence(ir, ENTRY.capacity)
    sequence.extend(0, len(IDS))
    rows = packing.pack_rows(ENTRY, ir, [packing.Segment(IDS, 0, sequence.tables)])
    out, _ = compiled(load_params(ir, MODEL, device()), pages, rows)
    return np.asarray(out)


def run(ir):
    """As in a new process: where the graph came from, and what it computes."""
    compiled = GraphCache().compile(ir, ENTRY, device())
    return compiled.cache, logits(ir, compiled)


def test_a_kept_graph_gives_the_bits_of_a_fresh_one(ir, folder, expected, warnings):
    assert run(ir)[0] == "miss"
    (file,) = folder.iterdir()
    assert file.stat().st_size > 10_000
    cache, found = run(ir)
    # A host may refuse what it has compiled itself: then it says so, and compiles again.
    assert cache == "hit" or warnings()
    assert np.array_equal(found, expected)


def test_off_keeps_nothing(ir, folder, expected, monkeypatch):
    monkeypatch.setenv(store.VARIABLE, "off")
    cache, found = run(ir)
    assert cache == "off" and np.array_equal(found, expected) and not folder.exists()


def test_the_folder_is_the_users_cache_unless_another_is_named(tmp_path, monkeypatch):
    monkeypatch.setenv("SYNAPSE_CACHE", str(tmp_path))
    monkeypatch.delenv(store.VARIABLE)
    assert store.graph_folder() == tmp_path / "graphs"
    monkeypatch.setenv(store.VARIABLE, str(tmp_path / "other"))
    assert store.graph_folder() == tmp_path / "other"


DAMAGE = {
    "random bytes": lambda data: np.random.RandomState(1).bytes(len(data)),
    "random bytes after the beginning": lambda data: data[:100] + np.random.RandomState(1).bytes(5000),
    "one bit": lambda data: data[:5000] + bytes([data[5000] ^ 1]) + data[5001:],
    "cut": lambda data: data[: len(data) // 2],
    "cut in the head": lambda data: data[:20],
    "empty": lambda data: b"",
    "longer": lambda data: data + b"\0",
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_file_costs_a_compilation_and_one_warning(ir, folder, expected, warnings, damage):
    run(ir)
    (file,) = folder.iterdir()
    whole = file.read_bytes()
    file.write_bytes(DAMAGE[damage](whole))
    cache, found = run(ir)
    assert cache == "miss" and np.array_equal(found, expected)
    assert len(warnings()) == 1 and "is damaged" in warnings()[0] and file.name in warnings()[0]
    # It was replaced. Whatever is damaged later in the same process is not warned of again.
    assert file.stat().st_size > 10_000
    file.write_bytes(b"")
    assert run(ir)[0] == "miss" and len(warnings()) == 1


def test_a_file_under_another_name_is_not_loaded(ir, folder, warnings):
    """What another machine, version or program left cannot stand for this one."""
    run(ir)
    (file,) = folder.iterdir()
    other = store.GraphStore(folder)._path(
        executable_identity(lower_on(ir, Entry("logits", 64, 256), device()).program, device()), device()
    )
    file.rename(other)
    lowered = lower_on(ir, Entry("logits", 64, 256), device())
    loaded = store.GraphStore(folder).load(
        executable_identity(lowered.program, device()), lowered.lowered, device()
    )
    assert loaded is None and "is damaged" in warnings()[0]


def test_what_the_runtime_refuses_is_compiled_again(ir, folder, expected, warnings, monkeypatch):
    run(ir)

    def refuse(*args, **kwargs):
        raise jax.errors.JaxRuntimeError("INTERNAL: compiled for +avx512f\nmore")

    monkeypatch.setattr(store.serialize_executable, "deserialize_and_load", refuse)
    cache, found = run(ir)
    assert cache == "miss" and np.array_equal(found, expected)
    assert len(warnings()) == 1 and "is refused here" in warnings()[0] and "more" not in warnings()[0]


def test_what_the_runtime_cannot_write_down_is_used_all_the_same(ir, folder, expected, warnings, monkeypatch):
    def refuse(compiled):
        raise ValueError("Compilation does not support serialization")

    monkeypatch.setattr(store.serialize_executable, "serialize", refuse)
    cache, found = run(ir)
    assert cache == "miss" and np.array_equal(found, expected)
    assert len(warnings()) == 1 and "cannot be kept: ValueError" in warnings()[0]


@pytest.mark.parametrize("code", [errno.EROFS, errno.EACCES, errno.ENOSPC])
def test_a_folder_that_cannot_be_written_costs_one_warning(ir, folder, expected, warnings, monkeypatch, code):
    def fail(*args, **kwargs):
        raise OSError(code, "no writing here")

    monkeypatch.setattr("tempfile.mkstemp", fail)
    for _ in range(2):
        cache, found = run(ir)
        assert cache == "miss" and np.array_equal(found, expected)
    assert len(warnings()) == 1 and "cannot be kept: no writing here" in warnings()[0]
    assert store.VARIABLE in warnings()[0]


def test_a_folder_that_is_none_costs_one_warning(ir, folder, expected, warnings):
    folder.write_bytes(b"a file")
    cache, found = run(ir)
    assert cache == "miss" and np.array_equal(found, expected) and len(warnings()) == 1


def test_threads_that_want_the_same_graph_compile_it_once(ir, folder):
    graphs, found = GraphCache(), []
    threads = [
        threading.Thread(target=lambda: found.append(graphs.compile(ir, ENTRY, device()))) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert graphs.compilations == 1 and len({id(entry.function) for entry in found}) == 1


@pytest.mark.parametrize("part", ["jaxlib", "cpu_features", "threads", "xla_flags", "processor"])
def test_the_name_depends_on_version_and_machine(ir, folder, monkeypatch, part):
    from synapse_jax.graph import fingerprint

    program = lower_on(ir, ENTRY, device()).program
    name = store.GraphStore(folder)._path(executable_identity(program, device()), device())
    version = fingerprint.metadata.version
    changes = {
        "jaxlib": (fingerprint.metadata, "version", lambda name: version(name) + ".1"),
        "cpu_features": (fingerprint, "cpu_features", lambda: "sse2"),
        "threads": (fingerprint, "thread_count", lambda: 99),
        "processor": (store, "_processor", lambda: "another"),
    }
    if part == "xla_flags":
        monkeypatch.setenv("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false")
    else:
        monkeypatch.setattr(*changes[part])
    other = store.GraphStore(folder)._path(executable_identity(program, device()), device())
    assert other.parent == name.parent and other.name != name.name


def test_what_was_not_used_for_longest_goes_first(ir, folder, monkeypatch):
    import os

    run(ir)
    (file,) = folder.iterdir()
    monkeypatch.setattr(store, "LIMIT_BYTES", 2 * file.stat().st_size)
    for index, age in enumerate([300, 100, 200]):
        (folder / f"{index}.graph").write_bytes(bytes(file.stat().st_size))
        os.utime(folder / f"{index}.graph", (1e9 - age, 1e9 - age))
    file.unlink()
    run(ir)
    assert {path.name for path in folder.iterdir()} == {"1.graph", file.name}
