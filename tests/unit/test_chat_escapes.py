"""Known ways out of jinja2's sandbox: none of them runs anything."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from synapse_jax.errors import InputError
from synapse_jax.io.chat import worker
from tests.chat_vocabulary import chat

OS = "__import__('os').system('touch MARKER')"
CLASSES = "''.__class__.__mro__[1].__subclasses__()"
ESCAPES = [
    "{{ ''.__class__.__mro__ }}",
    f"{{{{ {CLASSES} }}}}",
    f"{{% for c in {CLASSES} %}}"
    "{{ c.__init__.__globals__['sys'].modules['os'].system('touch MARKER') }}{% endfor %}",
    "{{ cycler.__init__.__globals__.os.system('touch MARKER') }}",
    "{{ joiner.__init__.__globals__.os.popen('touch MARKER').read() }}",
    "{{ namespace.__init__.__globals__['os'].system('touch MARKER') }}",
    "{{ lipsum.__globals__['os'].popen('touch MARKER').read() }}",
    "{{ lipsum|attr('__globals__')|attr('get')('os')|attr('system')('touch MARKER') }}",
    "{{ ''|attr('\\x5f\\x5fclass\\x5f\\x5f')|attr('mro')() }}",
    "{{ ''['__cla' + 'ss__']['__base__'] }}",
    "{{ self.__init__.__globals__.__builtins__ }}",
    "{{ self._TemplateReference__context.cycler.__init__.__globals__.os }}",
    "{{ '{0.__class__.__mro__}'.format('') }}",
    "{{ ['{0.__class__}']|map('format', 1)|list }}{{ ''|attr('format')|attr('__self__') }}",
    "{{ raise_exception.__globals__['sys'].modules['os'].system('touch MARKER') }}",
    "{{ strftime_now.__closure__[0].cell_contents }}",
    "{{ dict.__class__.__call__.__globals__ }}",
    "{{ namespace.__mro__[1].__init__.__globals__ }}",
    "{{ namespace(__class__=1) }}",
    "{% set n = namespace() %}{% set n.__class__ = dict %}{{ n }}",
    "{{ messages|groupby('__class__')|list }}{{ messages.__class__.__base__.__subclasses__() }}",
    "{{ messages.append(1) }}",
    "{{ messages[0].update({'role': 'x'}) }}",
    "{% macro m() %}{% endmacro %}{{ m._func.__globals__ }}",
    "{% macro m() %}{{ caller.__call__.__func__.__globals__ }}{% endmacro %}{% call m() %}{% endcall %}",
    "{{ (range(1)|batch(1)).gi_frame.f_builtins }}",
    "{{ loop.__init__ }}{% for i in [1] %}{{ loop.__class__.__init__.__globals__ }}{% endfor %}",
    f"{{{{ {OS} }}}}",
    "{{ open('MARKER', 'w') }}",
    "{{ self.__class__ }}{{ eval('1') }}",
    "{{ undefined_name.__init__.__globals__ }}",
]


UNDEFINED = [
    "{{ ''|attr('__class__')|attr('__mro__')|list }}",
    "{{ '{a.__class__}'.format_map({'a': 1}) }}",
    "{% set f = '{0.__class__}'.format %}{{ f(1) }}",
    "{{ ('{0.__class__.__init__}'|attr('format'))(cycler) }}",
    "{{ (messages|map(attribute='__class__')|list)[0].__init__ }}",
    "{% set x %}{{ ().__class__ }}{% endset %}{{ x }}",
]
"""Attempts that see an undefined value, which prints as nothing, as in transformers."""


@pytest.mark.parametrize("number", range(len(ESCAPES)))
def test_escapes_are_refused(number, tmp_path):
    marker = tmp_path / "marker"
    with pytest.raises(InputError) as caught:
        chat(ESCAPES[number].replace("MARKER", str(marker)))
    assert str(caught.value).isprintable()
    assert not marker.exists()


@pytest.mark.parametrize("number", range(len(UNDEFINED)))
def test_escapes_see_nothing(number):
    assert chat(UNDEFINED[number]).text in ("", "[]")


@pytest.mark.parametrize(
    "attempt", ["open('MARKER', 'w')", "os.system('touch MARKER')", "import antigravity"]
)
def test_no_files_and_processes_beyond_the_sandbox(tmp_path, attempt):
    """What an escape would find: the second wall, met by code that runs in such a process."""
    marker = tmp_path / "marker"
    folder = str(Path(worker.__file__).parent)
    code = (
        f"import os, sys; sys.path.insert(0, {folder!r}); import worker\n"
        "worker._confine(2**30, 5); sys.addaudithook(worker._deny)\n"
        f"try:\n    {attempt.replace('MARKER', str(marker))}\n"
        "except PermissionError as error:\n    print(error)"
    )
    done = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True)
    assert "a template may not do this" in done.stdout, done.stderr
    assert not marker.exists()
