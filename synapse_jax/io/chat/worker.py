"""Renders one chat template in a process of its own: a script that `render` starts by path.

A template comes with a model file, so it is someone else's program. Here it has
jinja2's sandbox, a timer, a limit on memory, no files and no processes, and the
request on stdin is all it sees. Nothing but the standard library and jinja2 is
imported: start-up is most of what a rendering costs.

Request and reply are one JSON object each; see `render`.
"""

from __future__ import annotations

import codecs
import datetime
import itertools
import json
import sys
import warnings
from typing import Any, ClassVar

_SHOWN = 500
"""Characters of a message that go into the reply."""

_DENIED = tuple("open import os. subprocess. socket. shutil. ctypes. pty. mmap. _winapi.".split())
"""Audit events that no template has use for: what an escape from the sandbox would need next."""


class _TimeUp(BaseException):
    """The timer went off. Not an Exception, so that nothing on the way out handles it."""


class _TooLong(Exception):
    """The text is longer than allowed."""


class _Denied(PermissionError):
    """Something that only code outside the sandbox can ask for."""


def render(request: dict[str, Any]) -> dict[str, Any]:
    """Renders a template.

    Args:
      request: template, variables, tokens (control-token texts), special (names
        of variables that hold them), mark (one character), now (ISO date),
        seconds, output_chars.

    Returns:
      {"text", "literals"}, or {"error": kind, "line", "message"} with a kind of
      syntax, refused, time, memory, depth, output, failed.
    """
    import jinja2
    from jinja2 import Template

    template: Any = None
    try:
        _start_timer(request["seconds"])
        environment = _environment(datetime.datetime.fromisoformat(request["now"]))
        tree = environment.parse(request["template"])
        literals = _literals(environment, tree)
        special = [request["variables"][name] for name in request["special"]]
        mark = _marker(request["tokens"], [node.text for node in literals] + special, request["mark"])
        for node in literals:
            node.mark(mark)
        variables = dict(request["variables"])
        variables.update({name: mark(variables[name]) for name in request["special"]})
        template = Template.from_code(environment, environment.compile(tree), environment.make_globals(None))
        text = _join(template.generate(variables), request["output_chars"])
        return {"text": text, "literals": sorted({node.text for node in literals} | set(special))}
    except jinja2.TemplateSyntaxError as error:
        return _failure("syntax", error.message or "", error.lineno)
    except _Refusal as error:
        return _failure("refused", error.args[0])
    except _TooLong as error:
        return _failure("output", "", _line(error))
    except _TimeUp as error:
        return _failure("time", "", _line(error))
    except MemoryError as error:
        return _failure("memory", "", _line(error))
    except RecursionError as error:
        return _failure("depth", "", _line(error))
    except Exception as error:
        spoken = isinstance(error, jinja2.TemplateError | _Denied)
        kind = "" if spoken else f"{type(error).__name__}: "
        return _failure("failed", f"{kind}{error}", _line(error))
    finally:
        _start_timer(0)


class _Refusal(Exception):
    """The template called raise_exception."""


class _Literal:
    """A string that the template spells out: text between tags, or a constant in one."""

    def __init__(self, node: Any, field: str):
        self._node, self._field = node, field
        self.text: str = getattr(node, field)

    def mark(self, mark: Any) -> None:
        setattr(self._node, self._field, mark(self.text))


def _literals(environment: Any, tree: Any) -> list[_Literal]:
    from jinja2 import TemplateSyntaxError, nodes, optimizer

    for node in tree.find_all((nodes.Include, nodes.Import, nodes.FromImport, nodes.Extends)):
        raise TemplateSyntaxError(
            f"{type(node).__name__.lower()} has no place in a chat template", node.lineno
        )
    # Constants that are added up are one string afterwards, so that '<|im_' ~ 'end|>' is seen whole.
    tree = optimizer.optimize(tree, environment)
    found = [_Literal(node, "data") for node in tree.find_all(nodes.TemplateData)]
    constants = [node for node in tree.find_all(nodes.Const) if isinstance(node.value, str)]
    return found + [_Literal(node, "value") for node in constants]


def _marker(tokens: list[str], literals: list[str], mark: str) -> Any:
    whole = "\0".join(literals)
    used = [token for token in tokens if token in whole]

    def apply(text: str) -> str:
        """Puts the mark after the first and before the last character of every control-token text."""
        cuts: set[int] = set()
        for token in used:
            at = text.find(token)
            while at >= 0:
                cuts |= {at + 1, at + len(token) - 1}
                at = text.find(token, at + 1)
        edges = [0, *sorted(cuts), len(text)]
        return mark.join(text[a:b] for a, b in itertools.pairwise(edges)) if cuts else text

    return apply


def _join(pieces: Any, most: int) -> str:
    parts, length = [], 0
    for piece in pieces:
        parts.append(piece)
        length += len(piece)
        if length > most:
            raise _TooLong
    return "".join(parts)


def _environment(now: datetime.datetime) -> Any:
    """jinja2's immutable sandbox with what transformers' `apply_chat_template` gives a template."""
    from jinja2 import ext, nodes, utils
    from jinja2.exceptions import SecurityError
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    class Generation(ext.Extension):
        """`{% generation %}` marks what an assistant wrote, for training. Here it is just its body."""

        tags: ClassVar[set[str]] = {"generation"}

        def parse(self, parser: Any) -> Any:
            line = next(parser.stream).lineno
            body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
            return nodes.Scope(body).set_lineno(line)

    class Namespace(utils.Namespace):
        """A namespace without names that mean something to Python."""

        def __init__(*args: Any, **kwargs: Any) -> None:
            self, *rest = args
            names = dict(*rest, **kwargs)
            for name in names:
                Namespace._check(name)
            utils.Namespace.__init__(self, names)

        def __setitem__(self, name: str, value: Any) -> None:
            Namespace._check(name)
            super().__setitem__(name, value)

        @staticmethod
        def _check(name: Any) -> None:
            if isinstance(name, str) and name.startswith("_"):
                raise SecurityError(f"a namespace has no attribute {name!r}: it begins with an underscore")

    class Dict:
        """`dict` as a function, without the class behind it."""

        def __call__(self, *args: Any, **kwargs: Any) -> dict[Any, Any]:
            return dict(*args, **kwargs)

        def fromkeys(self, *args: Any) -> dict[Any, Any]:
            return dict.fromkeys(*args)

    def raise_exception(message: object) -> None:
        raise _Refusal(str(message))

    def strftime_now(form: str) -> str:
        return now.strftime(form)

    def tojson(
        value: Any,
        ensure_ascii: Any = False,
        indent: Any = None,
        separators: Any = None,
        sort_keys: Any = False,
    ) -> str:
        return json.dumps(
            value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
        )

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, ext.loopcontrols]
    )
    environment.filters["tojson"] = tojson
    environment.globals.update(
        raise_exception=raise_exception, strftime_now=strftime_now, namespace=Namespace, dict=Dict()
    )
    return environment


def _failure(kind: str, message: str, line: int | None = None) -> dict[str, Any]:
    return {"error": kind, "message": message[:_SHOWN], "line": line}


def _line(error: BaseException) -> int | None:
    """The template's line in which an error came up, where the traceback tells."""
    line, step = None, error.__traceback__
    while step is not None:
        template = step.tb_frame.f_globals.get("__jinja_template__")
        if template is not None:
            line = template.get_corresponding_lineno(step.tb_lineno)
        elif step.tb_frame.f_code.co_filename == "<template>":
            line = step.tb_lineno
        step = step.tb_next
    return line


def _start_timer(seconds: float) -> None:
    try:
        from signal import ITIMER_REAL, SIGALRM, setitimer, signal
    except ImportError:  # Windows: the parent's limit is the only one
        return

    def up(*_: object) -> None:
        raise _TimeUp

    signal(SIGALRM, up)
    setitimer(ITIMER_REAL, seconds)


def _confine(memory_bytes: int, seconds: float) -> None:
    """Limits on this process; what the system does not have is left out, the sandbox is the first line."""
    try:
        import resource
    except ImportError:
        return
    limits = {"RLIMIT_AS": memory_bytes, "RLIMIT_CPU": int(seconds) + 2, "RLIMIT_CORE": 0, "RLIMIT_FSIZE": 0}
    for name, value in limits.items():
        try:
            resource.setrlimit(getattr(resource, name), (value, value))
        except (AttributeError, ValueError, OSError):
            continue


def _deny(event: str, _: object) -> None:
    if event.startswith(_DENIED):
        raise _Denied(f"a template may not do this: {event}")


def main() -> None:
    """Reads a request, confines this process, renders, writes the reply."""
    request = json.loads(sys.stdin.buffer.read())
    sys.path.extend(request["path"])
    # All that rendering loads when first used; afterwards nothing can be imported.
    import pprint  # noqa: F401
    import signal  # noqa: F401
    import textwrap  # noqa: F401

    import jinja2.constants
    import jinja2.debug
    import jinja2.ext
    import jinja2.optimizer
    import jinja2.sandbox  # noqa: F401

    for name in ("ascii", "latin-1", "unicode-escape", "utf-8"):  # jinja2's lexer uses the third
        codecs.lookup(name)
    warnings.simplefilter("ignore")
    _confine(request["memory_bytes"], request["seconds"])
    sys.addaudithook(_deny)
    reply = json.dumps(render(request))
    sys.stdout.buffer.write(reply.encode())
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
