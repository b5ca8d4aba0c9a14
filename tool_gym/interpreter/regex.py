"""``re`` for programs: Python's own parser of patterns, and a backtracking matcher that counts steps.

The native matcher cannot be stopped: ``(a+)+$`` against forty letters runs for hours without looking at a signal.
This one follows the parse tree of ``re`` with the same backtracking order, so it finds the same matches, and
charges a step for each node that it tries. Patterns are compiled to closures, each of which matches its node at a
position and then calls what comes after it; -1 means no.
"""

from __future__ import annotations

import _sre  # type: ignore[import-not-found]
import re
import re._casefix as _casefix  # type: ignore[import-not-found]
import re._constants as _c  # type: ignore[import-not-found]
import re._parser as _parser  # type: ignore[import-not-found]
import sys
from collections.abc import Callable, Iterator
from typing import Any

from .attributes import READERS
from .guards import ITEM_GETTERS
from .meter import METER
from .modules import define
from .values import class_name, register_text, to_repr

_Match = Callable[[int], int]
_Test = Callable[[str], bool]
_RECURSION = 20_000  # Python frames live on the heap: the matcher may nest deeper than programs

_FLAGS = {
    "A": re.A,
    "ASCII": re.A,
    "I": re.I,
    "IGNORECASE": re.I,
    "M": re.M,
    "MULTILINE": re.M,
    "S": re.S,
    "DOTALL": re.S,
    "U": re.U,
    "UNICODE": re.U,
    "X": re.X,
    "VERBOSE": re.X,
}
_ALLOWED_FLAGS = re.A | re.I | re.M | re.S | re.U | re.X
_TYPE_FLAGS = re.A | re.U


def _combined(flags: int, added: int, removed: int) -> int:
    """Flags inside ``(?i-s:...)``; of ASCII and Unicode the inner one counts."""
    if added & _TYPE_FLAGS:
        flags &= ~_TYPE_FLAGS
    return (flags | added) & ~removed


class _Run:
    """State of one match under way: the text, the groups, and the counters of its loops."""

    __slots__ = ("avoid", "counts", "end", "full", "last", "marks", "starts", "text")

    def __init__(self) -> None:
        self.text = ""
        self.end = 0
        self.full = False
        self.avoid = -1
        self.marks: list[tuple[int, int]] = []
        self.starts: list[int] = []
        self.counts: list[int] = []
        self.last: list[int] = []


# ------------------------------------------------------------------ single characters


def _word(character: str) -> bool:
    return character.isalnum() or character == "_"


_CATEGORIES: dict[Any, _Test] = {
    _c.CATEGORY_DIGIT: str.isdecimal,
    _c.CATEGORY_SPACE: str.isspace,
    _c.CATEGORY_WORD: _word,
}
_NEGATED = {
    _c.CATEGORY_NOT_DIGIT: _c.CATEGORY_DIGIT,
    _c.CATEGORY_NOT_SPACE: _c.CATEGORY_SPACE,
    _c.CATEGORY_NOT_WORD: _c.CATEGORY_WORD,
}


def _category(code: Any, ascii_only: bool) -> _Test:
    positive = _NEGATED.get(code)
    inner = _CATEGORIES[positive if positive is not None else code]
    if positive is None:
        return (lambda character: character < "\x80" and inner(character)) if ascii_only else inner
    if ascii_only:
        return lambda character: character >= "\x80" or not inner(character)
    return lambda character: not inner(character)


def _one_of(items: Any, flags: int) -> _Test:
    """A character class."""
    negate = bool(items) and items[0][0] is _c.NEGATE
    singles: set[str] = set()
    ranges: list[tuple[str, str]] = []
    tests: list[_Test] = []
    for operation, argument in items[1:] if negate else items:
        if operation is _c.LITERAL:
            singles.add(chr(argument))
        elif operation is _c.RANGE:
            ranges.append((chr(argument[0]), chr(argument[1])))
        else:
            tests.append(_category(argument, bool(flags & re.A)))

    def inside(character: str) -> bool:
        return (
            character in singles
            or any(low <= character <= high for low, high in ranges)
            or any(test(character) for test in tests)
        )

    if not flags & re.I:
        return lambda character: inside(character) is not negate
    lower = _lowered(flags)
    letters = set().union(*(_equal_letters(single, flags) for single in singles))

    def inside_in_any_case(character: str) -> bool:
        small = lower(character)
        return (
            small in letters
            or any(low <= form <= high for form in _forms(small, flags) for low, high in ranges)
            or any(test(small) for test in tests)
        )

    return lambda character: inside_in_any_case(character) is not negate


# Letters whose small one has another capital: the only ones (Unicode 14 to 15.1) that str.upper does not find.
_CAPITALS = {
    "i": "\u0130",
    "\u03b8": "\u03f4",
    "\u00df": "\u1e9e",
    "\u03c9": "\u2126",
    "k": "\u212a",
    "\u00e5": "\u212b",
}


def _lowered(flags: int) -> Callable[[str], str]:
    """The matcher's own idea of a small letter, which is a single one."""
    lower = _sre.ascii_tolower if flags & re.A else _sre.unicode_tolower
    return lambda character: chr(lower(ord(character)))


def _equal_letters(character: str, flags: int) -> set[str]:
    """The small letters that match ``character`` where case is ignored."""
    small = _lowered(flags)(character)
    others = () if flags & re.A else _casefix._EXTRA_CASES.get(ord(small), ())
    return {small, *map(chr, others)}


def _forms(small: str, flags: int) -> set[str]:
    """The characters, of either case, that match a small letter where case is ignored."""
    if flags & re.A:
        return {small, small.upper()} if small < "\x80" else {small}
    forms: set[str] = set()
    for letter in _equal_letters(small, flags):
        forms.update((letter, letter.upper(), letter.title(), _CAPITALS.get(letter, letter)))
    return {form for form in forms if len(form) == 1}


def _character(operation: Any, argument: Any, flags: int) -> _Test | None:
    """The test of a node that matches a single character; None for other nodes."""
    if operation is _c.LITERAL or operation is _c.NOT_LITERAL:
        if not flags & re.I:
            wanted = chr(argument)
            return wanted.__eq__ if operation is _c.LITERAL else wanted.__ne__
        letters, lower = _equal_letters(chr(argument), flags), _lowered(flags)
        if operation is _c.LITERAL:
            return lambda character: lower(character) in letters
        return lambda character: lower(character) not in letters
    if operation is _c.ANY:
        return (lambda character: True) if flags & re.S else (lambda character: character != "\n")
    if operation is _c.IN:
        return _one_of(argument, flags)
    return None


# ------------------------------------------------------------------ compilation to closures


class _Compiler:
    """Turns a parse tree into closures over one run."""

    def __init__(self, run: _Run) -> None:
        self.run = run

    def sequence(self, items: Any, flags: int, after: _Match) -> _Match:
        """Match the items one after the other, then ``after``."""
        for operation, argument in reversed(list(items)):
            after = self.node(operation, argument, flags, after)
        return after

    def node(self, operation: Any, argument: Any, flags: int, after: _Match) -> _Match:
        """Match one node, then ``after``. Raises re.error for one that this matcher does not know."""
        METER.charge(4)
        test = _character(operation, argument, flags)
        if test is not None:
            return self.single(test, after)
        if operation in (_c.MAX_REPEAT, _c.MIN_REPEAT, _c.POSSESSIVE_REPEAT):
            low, high, items = argument
            return self.repeat(operation, low, high, items, flags, after)
        if operation is _c.SUBPATTERN:
            group, added, removed, items = argument
            return self.group(group, items, _combined(flags, added, removed), after)
        if operation is _c.BRANCH:
            return self.branch([self.sequence(items, flags, after) for items in argument[1]])
        if operation is _c.AT:
            return self.at(argument, flags, after)
        if operation is _c.ASSERT or operation is _c.ASSERT_NOT:
            return self.look(argument[0], argument[1], operation is _c.ASSERT, flags, after)
        if operation is _c.GROUPREF:
            return self.reference(argument, flags, after)
        if operation is _c.GROUPREF_EXISTS:
            group, yes, no = argument
            return self.conditional(
                group, self.sequence(yes, flags, after), self.sequence(no, flags, after) if no else after
            )
        if operation is _c.ATOMIC_GROUP:
            return self.atomic(self.sequence(argument, flags, lambda i: i), after)
        if operation is _c.FAILURE:
            return lambda i: -1
        raise re.error(f"unsupported in patterns: {operation}")

    def single(self, test: _Test, after: _Match) -> _Match:
        run = self.run

        def match(i: int) -> int:
            METER.left -= 1
            if METER.left < 0:
                METER.exhausted()
            return after(i + 1) if i < run.end and test(run.text[i]) else -1

        return match

    def branch(self, choices: list[_Match]) -> _Match:
        def match(i: int) -> int:
            METER.charge(1)
            for choice in choices:
                end = choice(i)
                if end >= 0:
                    return end
            return -1

        return match

    def group(self, group: int | None, items: Any, flags: int, after: _Match) -> _Match:
        if group is None:
            return self.sequence(items, flags, after)
        run = self.run

        def close(i: int) -> int:
            before = run.marks[group]
            run.marks[group] = (run.starts[group], i)
            end = after(i)
            if end < 0:
                run.marks[group] = before
            return end

        inner = self.sequence(items, flags, close)

        def match(i: int) -> int:
            before = run.starts[group]
            run.starts[group] = i
            end = inner(i)
            if end < 0:
                run.starts[group] = before
            return end

        return match

    def repeat(self, kind: Any, low: int, high: Any, items: Any, flags: int, after: _Match) -> _Match:
        most = sys.maxsize if high is _c.MAXREPEAT else int(high)
        if kind is _c.POSSESSIVE_REPEAT:
            return self.atomic(self.repeat(_c.MAX_REPEAT, low, high, items, flags, lambda i: i), after)
        if len(items) == 1:
            inner, value = items[0]
            test = _character(inner, value, flags)
            if test is not None:
                return self.run_of(test, low, most, kind is _c.MIN_REPEAT, after)
        return self.loop(items, low, most, kind is _c.MIN_REPEAT, flags, after)

    def run_of(self, test: _Test, low: int, most: int, lazy: bool, after: _Match) -> _Match:
        """A repeated single character: no recursion, only a count to give back from."""
        run = self.run

        def longest(i: int, room: int) -> int:
            text, end = run.text, min(run.end, i + room, i + METER.left + 1)
            at = i
            while at < end and test(text[at]):
                at += 1
            METER.charge(1 + (at - i))
            return at

        def greedy(i: int) -> int:
            for at in range(longest(i, most), i + low - 1, -1):
                METER.charge(1)
                end = after(at)
                if end >= 0:
                    return end
            return -1

        def reluctant(i: int) -> int:
            at = longest(i, low)
            if at < i + low:
                return -1
            while True:
                METER.charge(1)
                end = after(at)
                if end >= 0:
                    return end
                if at - i >= most or at >= run.end or not test(run.text[at]):
                    return -1
                at += 1

        return reluctant if lazy else greedy

    def loop(self, items: Any, low: int, most: int, lazy: bool, flags: int, after: _Match) -> _Match:
        """A repeated group: its turns are counted, and a turn that matches nothing ends it."""
        run = self.run
        slot = len(run.counts)
        run.counts.append(0)
        run.last.append(-1)

        def again(i: int) -> int:
            METER.charge(1)
            count, last = run.counts[slot], run.last[slot]
            may = count < most and (count < low or i != last)
            if lazy and count >= low:
                end = after(i)
                if end >= 0:
                    return end
            if may:
                run.counts[slot], run.last[slot] = count + 1, i
                end = body(i)
                if end >= 0:
                    return end
                run.counts[slot], run.last[slot] = count, last
            return after(i) if count >= low and not lazy else -1

        body = self.sequence(items, flags, again)

        def enter(i: int) -> int:
            before = run.counts[slot], run.last[slot]
            run.counts[slot], run.last[slot] = 0, -1
            end = again(i)
            if end < 0:
                run.counts[slot], run.last[slot] = before
            return end

        return enter

    def atomic(self, inner: _Match, after: _Match) -> _Match:
        def match(i: int) -> int:
            METER.charge(1)
            end = inner(i)
            return after(end) if end >= 0 else -1

        return match

    def look(self, direction: int, items: Any, wanted: bool, flags: int, after: _Match) -> _Match:
        run = self.run
        inner = self.sequence(items, flags, lambda i: i)
        width = 0
        if direction < 0:
            width, widest = items.getwidth()
            if width != widest:
                raise re.error("look-behind requires fixed-width pattern")

        def match(i: int) -> int:
            METER.charge(1)
            marks = list(run.marks)
            found = i >= width and inner(i - width) >= 0
            if not (found and wanted):
                run.marks[:] = marks
            return after(i) if found is wanted else -1

        return match

    def reference(self, group: int, flags: int, after: _Match) -> _Match:
        run = self.run
        lower = _lowered(flags)

        def match(i: int) -> int:
            start, end = run.marks[group]
            if end < 0:
                return -1
            size = end - start
            METER.charge(1 + (size >> (3 if flags & re.I else 6)))
            text, taken = run.text[i : min(i + size, run.end)], run.text[start:end]
            same = text == taken
            if not same and flags & re.I and len(text) == size:
                same = all(a == b or lower(a) == lower(b) for a, b in zip(text, taken, strict=True))
            return after(i + size) if same else -1

        return match

    def conditional(self, group: int, yes: _Match, no: _Match) -> _Match:
        run = self.run
        return lambda i: yes(i) if run.marks[group][1] >= 0 else no(i)

    def at(self, code: Any, flags: int, after: _Match) -> _Match:
        run = self.run
        test = _position(code, flags, run)

        def match(i: int) -> int:
            METER.charge(1)
            return after(i) if test(i) else -1

        return match


def _position(code: Any, flags: int, run: _Run) -> Callable[[int], bool]:
    """The test of an anchor."""
    if code is _c.AT_BEGINNING and flags & re.M:
        return lambda i: i == 0 or run.text[i - 1] == "\n"
    if code is _c.AT_BEGINNING or code is _c.AT_BEGINNING_STRING:
        return lambda i: i == 0
    if code is _c.AT_END_STRING:
        return lambda i: i == run.end
    if code is _c.AT_END and flags & re.M:
        return lambda i: i == run.end or run.text[i] == "\n"
    if code is _c.AT_END:
        return lambda i: i == run.end or (i == run.end - 1 and run.text[i] == "\n")
    word = _category(_c.CATEGORY_WORD, bool(flags & re.A))

    def boundary(i: int) -> bool:
        before = i > 0 and word(run.text[i - 1])
        return before is not (i < run.end and word(run.text[i]))

    return boundary if code is _c.AT_BOUNDARY else (lambda i: not boundary(i))


# ------------------------------------------------------------------ patterns and matches


class Pattern:
    """A compiled pattern of a program."""

    __slots__ = ("_literal", "_match", "_run", "flags", "groupindex", "groups", "pattern")

    def __init__(self, pattern: str, flags: int) -> None:
        tree = _parser.parse(pattern, flags)
        self.pattern = pattern
        self.flags = int(tree.state.flags)
        self.groups = tree.state.groups - 1
        self.groupindex: dict[str, int] = dict(tree.state.groupdict)
        self._run = run = _Run()
        run.marks = [(-1, -1)] * (self.groups + 1)
        run.starts = [-1] * (self.groups + 1)

        def final(i: int) -> int:
            return -1 if i == run.avoid or (run.full and i != run.end) else i

        self._match = _Compiler(run).sequence(tree, self.flags, final)
        first: Any = tree[0] if len(tree) else (None, None)
        self._literal = chr(first[1]) if first[0] is _c.LITERAL and not self.flags & re.I else ""

    def match_at(
        self, text: str, start: int, end: int | None = None, full: bool = False, avoid: int = -1
    ) -> tuple[int, list[tuple[int, int]]] | None:
        """Match at ``start``: where the match ends, and the groups; None if there is none.

        With ``full`` it must end at ``end``, and it may not end at ``avoid``.
        """
        run = self._run
        run.text, run.full, run.avoid = text, full, avoid
        run.end = len(text) if end is None else end
        run.marks = [(-1, -1)] * (self.groups + 1)
        run.counts[:] = [0] * len(run.counts)
        run.last[:] = [-1] * len(run.last)
        depth = sys.getrecursionlimit()
        sys.setrecursionlimit(_RECURSION)
        try:
            stop = self._match(start)
        finally:
            sys.setrecursionlimit(depth)
        if stop < 0:
            return None
        run.marks[0] = (start, stop)
        return stop, run.marks

    def search(self, text: str, start: int, end: int, advance: bool = False) -> Match | None:
        """The first match at or after ``start``; with ``advance`` not an empty one at ``start`` itself."""
        while start <= end:
            if self._literal:
                found = text.find(self._literal, start, end)
                METER.charge(1 + ((end if found < 0 else found) - start >> 8))
                if found < 0:
                    return None
                start = found
            METER.charge(1)
            result = self.match_at(text, start, end, avoid=start if advance else -1)
            if result is not None:
                return Match(self, text, result[1])
            start, advance = start + 1, False
        return None

    def each(self, text: str, start: int = 0, end: int | None = None) -> Iterator[Match]:
        """All matches from left to right, as the native scanner finds them."""
        end = len(text) if end is None else end
        advance = False
        while (found := self.search(text, start, end, advance)) is not None:
            yield found
            begin, start = found.marks[0]
            advance = begin == start


class Match:
    """A match: what each group took."""

    __slots__ = ("marks", "re", "string")

    def __init__(self, pattern: Pattern, text: str, marks: list[tuple[int, int]]) -> None:
        self.re = pattern
        self.string = text
        self.marks = list(marks)

    def number(self, group: Any) -> int:
        """A group by number or name. Raises IndexError if there is none."""
        if type(group) is str and group in self.re.groupindex:
            return self.re.groupindex[group]
        if type(group) is int and 0 <= group <= self.re.groups:
            return group
        raise IndexError("no such group")

    def text(self, group: Any, default: Any = None) -> Any:
        """What a group took, or ``default``."""
        start, end = self.marks[self.number(group)]
        if end < 0:
            return default
        METER.check_characters(end - start)
        return self.string[start:end]


def _subject(text: Any) -> str:
    if type(text) is not str:
        raise TypeError(f"expected string or bytes-like object, got '{class_name(type(text))}'")
    METER.check_characters(len(text))
    return text


def compile_pattern(pattern: Any, flags: Any = 0) -> Pattern:
    """``re.compile``. Raises re.error for a bad pattern and TypeError for one that is no string."""
    if type(pattern) is Pattern:
        return pattern
    if type(pattern) is not str:
        raise TypeError("first argument must be string or compiled pattern")
    if type(flags) is not int or flags & ~int(_ALLOWED_FLAGS):
        raise ValueError("these flags are not available")
    METER.charge(20 + 8 * len(pattern))
    return Pattern(pattern, flags)


def _bounds(text: str, bounds: tuple[Any, ...]) -> tuple[int, int]:
    start = bounds[0] if bounds else 0
    end = bounds[1] if len(bounds) > 1 else len(text)
    if type(start) is not int or type(end) is not int or len(bounds) > 2:
        raise TypeError("positions must be integers")
    return min(max(start, 0), len(text)), min(max(end, 0), len(text))


def _match(pattern: Pattern, text: Any, *bounds: Any) -> Match | None:
    text = _subject(text)
    result = pattern.match_at(text, *_bounds(text, bounds))
    return None if result is None else Match(pattern, text, result[1])


def _fullmatch(pattern: Pattern, text: Any, *bounds: Any) -> Match | None:
    text = _subject(text)
    result = pattern.match_at(text, *_bounds(text, bounds), full=True)
    return None if result is None else Match(pattern, text, result[1])


def _search(pattern: Pattern, text: Any, *bounds: Any) -> Match | None:
    text = _subject(text)
    return pattern.search(text, *_bounds(text, bounds))


def _findall(pattern: Pattern, text: Any, *bounds: Any) -> list[Any]:
    text = _subject(text)
    found: list[Any] = []
    for match in pattern.each(text, *_bounds(text, bounds)):
        METER.check_items(0 if len(found) < METER.items else len(found) + 1)
        groups = [match.text(group, "") for group in range(1, pattern.groups + 1)]
        found.append(match.text(0) if not groups else groups[0] if len(groups) == 1 else tuple(groups))
    return found


def _finditer(pattern: Pattern, text: Any, *bounds: Any) -> Iterator[Match]:
    text = _subject(text)
    return iter(list(pattern.each(text, *_bounds(text, bounds))))


def _split(pattern: Pattern, text: Any, maxsplit: Any = 0) -> list[Any]:
    text = _subject(text)
    parts: list[Any] = []
    at = count = 0
    for match in pattern.each(text):
        if maxsplit and count >= maxsplit:
            break
        start, end = match.marks[0]
        parts.append(text[at:start])
        parts.extend(match.text(group) for group in range(1, pattern.groups + 1))
        at, count = end, count + 1
    parts.append(text[at:])
    METER.check_items(len(parts))
    return parts


_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "f": "\f", "v": "\v", "a": "\a", "b": "\b", "\\": "\\"}


def _template(replacement: str, pattern: Pattern) -> list[Any]:
    """A replacement as literal strings and group numbers. Raises re.error for a bad escape."""
    parts: list[Any] = []
    at = 0
    while (start := replacement.find("\\", at)) >= 0:
        METER.charge(1)
        parts.append(replacement[at:start])
        letter = replacement[start + 1 : start + 2]
        at = start + 2
        if letter == "g" and (close := replacement.find(">", at)) > 0 and replacement[at : at + 1] == "<":
            name = replacement[at + 1 : close]
            group = int(name) if name.isdecimal() and len(name) < 6 else pattern.groupindex.get(name, -1)
            at = close + 1
        elif letter.isdecimal() and letter != "0":
            digits = replacement[start + 1 : start + 3]
            digits = digits if digits.isdecimal() else letter
            group, at = int(digits), start + 1 + len(digits)
        elif letter in _ESCAPES:
            parts.append(_ESCAPES[letter])
            continue
        elif letter == "0":
            parts.append("\0")
            continue
        elif not letter.isalnum() and letter:
            parts.append("\\" + letter)
            continue
        else:
            raise re.error(f"bad escape \\{letter}")
        if not 0 <= group <= pattern.groups:
            raise re.error(f"invalid group reference {group}")
        parts.append(group)
    parts.append(replacement[at:])
    return parts


def _subn(pattern: Pattern, replacement: Any, text: Any, count: Any = 0) -> tuple[str, int]:
    text = _subject(text)
    parts = _template(replacement, pattern) if type(replacement) is str else None
    if parts is None and not callable(replacement):
        raise TypeError("the replacement must be a string or a function")
    pieces: list[str] = []
    at = size = done = 0
    for match in pattern.each(text):
        if count and done >= count:
            break
        start, end = match.marks[0]
        if parts is None:
            piece = replacement(match)
            if type(piece) is not str:
                raise TypeError(f"expected str instance, {class_name(type(piece))} found")
        else:
            piece = "".join(part if type(part) is str else match.text(part, "") for part in parts)
        pieces += (text[at:start], piece)
        size += start - at + len(piece)
        METER.check_characters(len(piece))
        if size > METER.characters:
            METER.too_big(f"a string of more than {METER.characters} characters")
        at, done = end, done + 1
    pieces.append(text[at:])
    METER.check_characters(size + len(text) - at)
    return "".join(pieces), done


def _sub(pattern: Pattern, replacement: Any, text: Any, count: Any = 0) -> str:
    return _subn(pattern, replacement, text, count)[0]


_METHODS: dict[str, Callable[..., Any]] = {
    "findall": _findall,
    "finditer": _finditer,
    "fullmatch": _fullmatch,
    "match": _match,
    "search": _search,
    "split": _split,
    "sub": _sub,
    "subn": _subn,
}


def _pattern_attribute(pattern: Pattern, name: str) -> Any:
    if name in _METHODS:
        method = _METHODS[name]
        return lambda *arguments, **names: method(pattern, *arguments, **names)
    if name in ("pattern", "flags", "groups"):
        return getattr(pattern, name)
    if name == "groupindex":
        return dict(pattern.groupindex)
    if hasattr(re.Pattern, name):
        METER.refuse(f"the attribute {name!r} of patterns")
    raise AttributeError(f"'re.Pattern' object has no attribute {name!r}")


def _groups(match: Match, default: Any = None) -> tuple[Any, ...]:
    return tuple(match.text(group, default) for group in range(1, match.re.groups + 1))


def _group(match: Match, *groups: Any) -> Any:
    if len(groups) < 2:
        return match.text(groups[0] if groups else 0)
    return tuple(match.text(group) for group in groups)


_MATCH_METHODS: dict[str, Callable[..., Any]] = {
    "end": lambda match, group=0: match.marks[match.number(group)][1],
    "group": _group,
    "groupdict": lambda match, default=None: {name: match.text(name, default) for name in match.re.groupindex},
    "groups": _groups,
    "span": lambda match, group=0: match.marks[match.number(group)],
    "start": lambda match, group=0: match.marks[match.number(group)][0],
}


def _match_attribute(match: Match, name: str) -> Any:
    if name in _MATCH_METHODS:
        method = _MATCH_METHODS[name]
        return lambda *arguments, **names: method(match, *arguments, **names)
    if name in ("string", "re"):
        return getattr(match, name)
    if hasattr(re.Match, name):
        METER.refuse(f"the attribute {name!r} of matches")
    raise AttributeError(f"'re.Match' object has no attribute {name!r}")


def _by_pattern(method: Callable[..., Any], arguments: int) -> Callable[..., Any]:
    """A function of the module: the pattern first, ``flags`` last."""

    def function(pattern: Any, *rest: Any, flags: Any = 0, **names: Any) -> Any:
        if len(rest) > arguments:
            *rest_list, flags = rest
            rest = tuple(rest_list)
        return method(compile_pattern(pattern, flags), *rest, **names)

    return function


def _escape(pattern: Any) -> str:
    subject = _subject(pattern)
    METER.check_characters(len(subject) << 1)
    return re.escape(subject)


READERS[Pattern] = _pattern_attribute
READERS[Match] = _match_attribute
ITEM_GETTERS[Match] = lambda match, group: match.text(group)
register_text(Pattern, lambda pattern: f"re.compile({to_repr(pattern.pattern)})")
register_text(Match, lambda match: f"<re.Match object; span={match.marks[0]}, match={to_repr(match.text(0))}>")
_ARGUMENTS = {"split": 2, "sub": 3, "subn": 3}
define(
    "re",
    {name: _by_pattern(method, _ARGUMENTS.get(name, 1)) for name, method in _METHODS.items()}
    | {name: int(flag) for name, flag in _FLAGS.items()}
    | {"compile": compile_pattern, "error": re.error, "escape": _escape},
)
