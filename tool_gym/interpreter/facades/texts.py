"""``string``, ``textwrap`` and ``json`` for programs."""

from __future__ import annotations

import json
import re
import string
import textwrap
from collections.abc import Callable
from typing import Any

from ..attributes import WITHHELD, expect, read_attribute
from ..guards import getitem, take_all
from ..meter import METER
from ..modules import define
from ..values import MAPPINGS, SCALARS, GuestMeta, class_name, plain, special, to_str
from .numeric import whole
from .records import Record, plain_tuple

# ------------------------------------------------------------------ string


def _capwords(s: Any, sep: Any = None) -> str:
    if type(s) is not str:
        raise AttributeError(f"'{class_name(type(s))}' object has no attribute 'split'")
    METER.charge(len(s) >> 2)
    return str(string.capwords(s, sep))


class Template(metaclass=GuestMeta):
    """``string.Template``: programs may derive from it, and patterns of theirs run in the counted matcher."""

    __module__ = "string"
    delimiter = "$"
    idpattern = "(?a:[_a-z][_a-z0-9]*)"
    pattern = WITHHELD
    flags = WITHHELD
    braceidpattern = WITHHELD

    def __init__(self, template: Any) -> None:
        self.template = template

    def substitute(self, mapping: Any = None, /, **names: Any) -> str:
        """Fill in the placeholders. Raises KeyError for one without a value, ValueError for a bad one."""
        return _fill(self, _lookup(mapping, names), safe=False)

    def safe_substitute(self, mapping: Any = None, /, **names: Any) -> str:
        """Fill in what has a value and leave the rest."""
        return _fill(self, _lookup(mapping, names), safe=True)

    def get_identifiers(self) -> list[str]:
        """The names of the placeholders, each once, in order."""
        return list(dict.fromkeys(name for _, name, _ in _placeholders(self) if name))

    def is_valid(self) -> bool:
        """Whether every delimiter begins a placeholder."""
        return all(name is not None for _, name, _ in _placeholders(self))


_Lookup = Callable[[str], Any]


def _lookup(mapping: Any, names: dict[str, Any]) -> _Lookup:
    """Values by name: those given by keyword first. Raises TypeError for what is no mapping."""
    if mapping is not None and type(mapping) not in MAPPINGS and special(mapping, "__getitem__") is None:
        raise TypeError(f"a template takes values from a mapping, not from a {class_name(type(mapping))}")

    def value(name: str) -> Any:
        METER.charge(5)
        if name in names or mapping is None:
            return names[name]
        return getitem(mapping, name)

    return value


def _placeholders(template: Any) -> list[tuple[str, str | None, str]]:
    """A template in pieces: the text before each delimiter, the name after it, and the delimiter with the name.

    The name is "" for a doubled delimiter and at the end, None for a delimiter that begins nothing.
    """
    from ..regex import compile_pattern

    kind = type(template)
    text, delimiter, identifier = template.template, kind.delimiter, kind.idpattern
    for value in (text, delimiter, identifier):
        if type(value) is not str:
            raise TypeError("a template, its delimiter and its idpattern are strings")
    if any(getattr(kind, name) is not WITHHELD for name in ("pattern", "flags", "braceidpattern")):
        METER.refuse("a Template with a pattern of its own")
    METER.check_characters(len(text))
    if not delimiter:
        raise ValueError("the delimiter of a template is empty")
    matcher = compile_pattern(identifier, int(re.IGNORECASE))
    pieces: list[tuple[str, str | None, str]] = []
    at = 0
    while (start := text.find(delimiter, at)) >= 0:
        METER.charge(10)
        name, end = _placeholder(matcher, text, start + len(delimiter), delimiter)
        pieces.append((text[at:start], name, text[start:end] if name != "" else delimiter))
        at = end
    return [*pieces, (text[at:], "", "")]


def _placeholder(matcher: Any, text: str, at: int, delimiter: str) -> tuple[str | None, int]:
    """The name that follows a delimiter, and where the text goes on."""
    if text.startswith(delimiter, at):
        return "", at + len(delimiter)
    braced = text.startswith("{", at)
    found = matcher.match_at(text, at + braced)
    end = -1 if found is None else found[0]
    if end < 0 or (braced and not text.startswith("}", end)):
        return None, at
    return text[at + braced : end], end + braced


def _fill(template: Any, value: _Lookup, safe: bool) -> str:
    parts: list[str] = []
    size = 0
    for literal, name, original in _placeholders(template):
        piece = original
        if name is None and not safe:
            raise ValueError("Invalid placeholder in string")
        if name:
            try:
                piece = to_str(value(name))
            except KeyError:
                if not safe:
                    raise
        parts += (literal, piece)
        size += len(literal) + len(piece)
        if size > METER.characters:
            METER.too_big(f"a string of more than {METER.characters} characters")
        METER.check_characters(len(piece))
    METER.check_characters(size)
    return "".join(parts)


define(
    "string",
    {name: getattr(string, name) for name in dir(string) if type(getattr(string, name)) is str and name[0] != "_"}
    | {"Template": Template, "capwords": _capwords},
)


# ------------------------------------------------------------------ textwrap

_LONGEST_INDENT = 1000


class _Wrapper(textwrap.TextWrapper):
    """Python's, but that it finds the words with the counted matcher."""

    def _split(self, text: str) -> list[str]:
        from ..regex import compile_pattern

        words = self.wordsep_re if self.break_on_hyphens else self.wordsep_simple_re
        METER.charge(len(text))
        pattern = compile_pattern(words.pattern, words.flags & int(re.VERBOSE))
        chunks = [chunk for chunk in read_attribute(pattern, "split")(text) if chunk]
        METER.charge(10 * len(chunks))
        longest = max(map(len, chunks), default=0)
        # A word longer than a line is cut off again and again.
        METER.charge((longest * longest // max(1, self.width)) >> 8)
        return chunks


_FLAGS = "expand_tabs replace_whitespace fix_sentence_endings break_long_words drop_whitespace break_on_hyphens"
_TEXTS = ("initial_indent", "subsequent_indent", "placeholder")


def _wrapper(width: Any, options: dict[str, Any]) -> _Wrapper:
    """A wrapper with checked options. Raises TypeError for those that Python does not know."""
    given: dict[str, Any] = {"width": plain(width)}
    for name, value in options.items():
        if name in _TEXTS:
            expect(value, str, name)
            if len(value) > _LONGEST_INDENT:
                METER.refuse(f"textwrap with {name} of more than {_LONGEST_INDENT} characters")
            given[name] = value
        elif name in ("tabsize", "max_lines"):
            given[name] = whole(value)
        elif name in _FLAGS.split():
            given[name] = bool(value)
        else:
            raise TypeError(f"TextWrapper.__init__() got an unexpected keyword argument '{name}'")
    for name in ("width", "tabsize", "max_lines"):
        if type(given.get(name, 0)) not in (int, bool) and not (name == "max_lines" and given[name] is None):
            raise TypeError(f"{name} must be an integer")
    return _Wrapper(**given)


def _wrapped(text: Any, width: Any, options: dict[str, Any]) -> list[str]:
    expect(text, str, "wrap")
    wrapper = _wrapper(width, options)
    if wrapper.expand_tabs:
        METER.check_characters(len(text) + max(0, wrapper.tabsize) * text.count("\t"))
    METER.check_characters(len(text) << 2)
    lines = wrapper.wrap(text)
    METER.check_items(len(lines))
    METER.check_characters(sum(map(len, lines)))
    return lines


def _wrap(text: Any, width: Any = 70, **options: Any) -> list[str]:
    return _wrapped(text, width, options)


def _fill_text(text: Any, width: Any = 70, **options: Any) -> str:
    return "\n".join(_wrapped(text, width, options))


def _shorten(text: Any, width: Any, **options: Any) -> str:
    expect(text, str, "shorten")
    METER.charge(len(text) >> 4)
    return "\n".join(_wrapped(" ".join(text.strip().split()), width, {**options, "max_lines": 1}))


def _margin(lines: list[str]) -> str:
    """The white space that all lines begin with, but for those with nothing else."""
    margin: str | None = None
    for line in lines:
        indent = line[: len(line) - len(line.lstrip(" \t"))]
        if not margin and margin is not None:
            break
        if len(indent) == len(line):
            continue
        if margin is None:
            margin = indent
        else:
            same = next((i for i, (a, b) in enumerate(zip(margin, indent, strict=False)) if a != b), None)
            margin = margin[: min(len(margin), len(indent)) if same is None else same]
    return margin or ""


def _dedent(text: Any) -> str:
    expect(text, str, "dedent")
    METER.check_characters(len(text) << 1)
    METER.charge((len(text) >> 4) + 5 * text.count("\n"))
    lines = text.split("\n")
    METER.check_items(len(lines))
    margin = len(_margin(lines))
    return "\n".join("" if not line.strip(" \t") else line[margin:] for line in lines)


def _indent(text: Any, prefix: Any, predicate: Any = None) -> str:
    expect(text, str, "indent")
    expect(prefix, str, "indent")
    METER.check_characters(len(text))
    lines = text.splitlines(True)
    METER.check_items(len(lines))
    METER.check_characters(len(text) + len(lines) * len(prefix))
    parts = []
    for line in lines:
        METER.charge(1)
        wanted = line.strip() if predicate is None else predicate(line)
        parts.append(prefix + line if wanted else line)
    return "".join(parts)


define(
    "textwrap",
    {"dedent": _dedent, "fill": _fill_text, "indent": _indent, "shorten": _shorten, "wrap": _wrap},
    in_scope=False,
)


# ------------------------------------------------------------------ json

_JSON_KEYS: frozenset[type] = frozenset({str, int, float, bool, type(None)})


def _checked_key(key: Any, skip: bool) -> Any:
    """A key as JSON has it. Raises TypeError for one that it has not."""
    key = plain(key)
    if type(key) in _JSON_KEYS:
        if type(key) is str:
            METER.check_characters(len(key) << 2)
        return key
    if skip:
        return _SKIPPED
    raise TypeError(f"keys must be str, int, float, bool or None, not {class_name(type(key))}")


_SKIPPED = object()


class _Copy:
    """A copy of a value with nothing in it but what JSON knows.

    Args:
        default: converts what JSON does not know; None if that is an error.
        skip: leave out what has a key that JSON does not know.
        margin: characters of one level of indentation.
    """

    __slots__ = ("_default", "_holders", "_margin", "_skip")

    def __init__(self, default: Any, skip: bool, margin: int) -> None:
        self._default = default
        self._skip = skip
        self._margin = margin
        self._holders: set[int] = set()

    def of(self, value: Any) -> Any:
        """The copy, charged. Raises TypeError for what JSON does not know, ValueError for a loop."""
        METER.charge(5 if self._margin < 0 else 10)
        kind = type(value)
        if kind is str:
            METER.check_characters(len(value) << 2)
            return value
        if kind in SCALARS and kind is not complex:
            return value
        if isinstance(value, int):
            return plain(value)
        if id(value) in self._holders:
            raise ValueError("Circular reference detected")
        self._holders.add(id(value))
        found = self._container(value, kind)
        self._holders.discard(id(value))
        return found

    def _container(self, value: Any, kind: type) -> Any:
        if kind in MAPPINGS or kind is list or kind is tuple or isinstance(value, Record):
            METER.check_items(len(value))
            METER.check_characters(len(value) * len(self._holders) * max(0, self._margin))
        if kind in MAPPINGS:
            found = {}
            for key, item in list(value.items()):
                key = _checked_key(key, self._skip)
                if key is not _SKIPPED:
                    found[key] = self.of(item)
            return found
        if kind is list or kind is tuple or isinstance(value, Record):
            items = plain_tuple(value) if isinstance(value, Record) else list(value)
            return [self.of(item) for item in items]
        if self._default is None:
            raise TypeError(f"Object of type {class_name(kind)} is not JSON serializable")
        return self.of(self._default(value))


def _indentation(indent: Any) -> Any:
    indent = plain(indent)
    if indent is not None and type(indent) not in (int, str, bool):
        raise TypeError("indent must be an integer or a string")
    if (type(indent) is int and indent > 16) or (type(indent) is str and len(indent) > 16):
        METER.refuse("json.dumps with an indent of more than 16")
    return indent


def _separators(separators: Any) -> Any:
    if separators is None:
        return None
    marks = tuple(take_all(separators))
    if len(marks) != 2 or any(type(mark) is not str or len(mark) > 16 for mark in marks):
        raise TypeError("separators must be two short strings")
    return marks


def _dumps(
    obj: Any,
    *,
    skipkeys: Any = False,
    ensure_ascii: Any = True,
    check_circular: Any = True,
    allow_nan: Any = True,
    indent: Any = None,
    separators: Any = None,
    default: Any = None,
    sort_keys: Any = False,
) -> str:
    indent, separators = _indentation(indent), _separators(separators)
    margin = -1 if indent is None else len(indent) if type(indent) is str else max(0, indent)
    text = json.dumps(
        _Copy(default, bool(skipkeys), margin).of(obj),
        ensure_ascii=bool(ensure_ascii),
        allow_nan=bool(allow_nan),
        indent=indent,
        separators=separators,
        sort_keys=bool(sort_keys),
    )
    METER.check_characters(len(text))
    return text


def _hook(function: Any) -> Any:
    """A function of the program that the reader calls for each of what it reads."""
    if function is None:
        return None

    def call(value: Any) -> Any:
        METER.charge(1)
        return function(value)

    return call


def _loads(
    s: Any,
    *,
    object_hook: Any = None,
    parse_float: Any = None,
    parse_int: Any = None,
    parse_constant: Any = None,
    object_pairs_hook: Any = None,
) -> Any:
    if type(s) is bytes:
        METER.check_characters(len(s))
        s = s.decode("utf-8")
    if type(s) is not str:
        raise TypeError(f"the JSON object must be str, bytes or bytearray, not {class_name(type(s))}")
    METER.check_characters(len(s))
    METER.charge(1 + (len(s) >> 3))
    return json.loads(
        s,
        object_hook=_hook(object_hook),
        parse_float=_hook(parse_float),
        parse_int=_hook(parse_int),
        parse_constant=_hook(parse_constant),
        object_pairs_hook=_hook(object_pairs_hook),
    )


define("json", {"JSONDecodeError": json.JSONDecodeError, "dumps": _dumps, "loads": _loads})
