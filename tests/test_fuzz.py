"""A little of the fuzzer (tests/fuzz.py), the same examples each time, and what it has found."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fuzz import CHEAP, PROBE, TIGHT, as_python, contained, python_says, same_in_both
from tests.programs import KINDS, hostile_programs, programs, raw_texts
from tool_gym.interpreter import InterpreterPool

some = settings(deadline=None, suppress_health_check=list(HealthCheck))


@pytest.fixture(scope="module")
def cheap() -> Iterator[InterpreterPool]:
    with InterpreterPool(workers=1, limits=CHEAP) as pool:
        yield pool


@pytest.fixture(scope="module")
def tight() -> Iterator[InterpreterPool]:
    with InterpreterPool(workers=1, limits=TIGHT) as pool:
        yield pool


@pytest.fixture(scope="module")
def other() -> Iterator[InterpreterPool]:
    with InterpreterPool(workers=1, limits=TIGHT) as pool:
        yield pool


@given(code=programs())
@settings(some, max_examples=200)
def test_generated_program_prints_and_ends_as_in_python(cheap: InterpreterPool, code: str) -> None:
    assert as_python(cheap, code) == ""


@given(code=hostile_programs())
@settings(some, max_examples=20)
def test_hostile_program_ends_within_its_budget_and_leaves_the_next_call_alone(
    tight: InterpreterPool, code: str
) -> None:
    assert contained(tight, code, tight.run(PROBE)) == ""


@given(code=raw_texts)
@settings(some, max_examples=100)
def test_any_text_gets_an_answer_and_leaves_the_next_call_alone(tight: InterpreterPool, code: str) -> None:
    assert contained(tight, code, tight.run(PROBE)) == ""


@given(code=st.one_of(programs(), programs(), hostile_programs()), before=hostile_programs())
@settings(some, max_examples=8)
def test_record_is_the_same_in_another_worker_after_another_program(
    tight: InterpreterPool, other: InterpreterPool, code: str, before: str
) -> None:
    assert same_in_both(tight, other, code, before) == ""


def test_no_fuzzed_program_needed_a_backstop(
    cheap: InterpreterPool, tight: InterpreterPool, other: InterpreterPool
) -> None:
    # Runs after the above: the counters are those of all the programs.
    for pool in (cheap, tight, other):
        assert (pool.stats.kills, pool.stats.crashes, pool.stats.infrastructure_failures) == (0, 0, 0)


@pytest.mark.parametrize("kind", KINDS)
def test_simplest_expressions_of_a_kind_are_of_that_kind(kind: str) -> None:
    leaves, _ = KINDS[kind]
    if kind in ("ints", "floats", "strs", "pairs", "plain", "small", "iter", "function", "type", "error"):
        return
    code = "\n".join(f"print(type({leaf}).__name__)" for leaf in leaves)
    names = {"none": "NoneType", "default": "defaultdict", "ordered": "OrderedDict", "frac": "Fraction"}
    texts = dict.fromkeys(("pattern", "spec", "percent", "braces"), "str")
    expected = {**names, **texts, "counter": "Counter"}.get(kind, kind)
    assert set(python_says(code)[0].split()) <= {expected, "bool" if kind == "int" else expected}


# What the fuzzer, and reading the interpreter for what it should try, have found to differ from Python.
MENDED = r"""
print(round(2.567, ndigits=2), str(b"abc", encoding="utf-8"), bytes("a", encoding="utf-8"), complex(real=1, imag=2))

print((5).to_bytes(length=2, byteorder="big"), int.from_bytes(bytes=b"ab", byteorder="big"))

max()

max(1, 2, default=0)

print(sum(0.1 for _ in range(10)), sum([1e16, 1.0, -1e16]), sum(iter([1, 2.5, True])))

sum([b"a"], b"")

print(isinstance(3, int | str), isinstance(3, str | None), int | None, list[int]([1]), issubclass(bool, float | int))

int[3]

class A:
    pass
class B(A):
    pass
print(isinstance(B(), A | int), isinstance(1, A | B), A | B)

print(OSError(1, 'x'), OSError('x'))

for text, codec in [(b"\xff", "utf-8"), ("\ud800", "utf-8"), ("\u00e9", "ascii")]:
    try:
        text.decode(codec) if type(text) is bytes else text.encode(codec)
    except UnicodeError as e:
        print(e)

class A:
    pass
def f():
    class B:
        pass
    print(B, B(), type(A()), [A], lambda: 0, f, (x for x in []))
f()
print(collections.Counter, collections.deque, type(collections.defaultdict(int)), fractions.Fraction)

print('{:{}.{}f} {}'.format(3.14159, 8, 2, 'x'), '{x:{}}{}'.format(5, 6, x=1))

print('{0} {}'.format(1, 2))

print('{} {0}'.format(1, 2))

print('{:{:{}}}'.format(1, 2, 3))

print('{:}}'.format(3))

class A:
    def __float__(self):
        return 1.5
    def __index__(self):
        return 7
print('%f %d %x %i' % (A(), A(), A(), fractions.Fraction(5, 2)), '%ld' % 5)

for make in (lambda: enumerate(5), lambda: zip([1], 5), lambda: map(len, 5), lambda: filter(None, 5), lambda: iter(5)):
    try:
        make()
    except TypeError:
        print("at once")

enumerate([1], "a")

reversed(x for x in [1])

class S:
    def __len__(self):
        return 3
    def __getitem__(self, i):
        if i >= 3:
            raise IndexError
        return i * 2
    def __setitem__(self, k, v):
        print(k, v)
    def __delitem__(self, k):
        print(k)
s = S()
print(list(s), [x for x in s], 4 in s, list(reversed(s)), next(iter(s)), [*s], max(s), 2 in iter(s), dict(zip(s, s)))
s[1:2] = 5
del s[1:2]

class C:
    op = abs
    sq = math.sqrt
    power = functools.partial(pow, 2)
    @functools.lru_cache
    def method(self):
        return 4
print(C().op(-3), C().sq(4), C().power(3), C().method())

print(list(map(next, [iter([1]), iter([])])), len(list(filter(next, [iter([1]), iter([])]))))

def g():
    try:
        yield 1
    except MemoryError:
        print("its own")
        yield 2
x = g()
next(x)
print(x.throw(MemoryError()))

x = 1
def f():
    x: int
    return x
f()

d = {1: 2}
d |= [(3, 4)]
d |= {5: 6}.items()
print(d, "abc".split("b", True))

x = copy.deepcopy(collections.deque([1, 2], maxlen=2))
x.append(3)
print(x, copy.deepcopy(object()) is None, collections.OrderedDict(b=1))

object().x = 1

collections.deque(0, -1)

print(f"{fractions.Fraction(1, 2)}")
format(fractions.Fraction(1, 2), "5c")

class E(Exception):
    def __repr__(self):
        return "mine"
print(E(3), [E(3)], f"{E(4)}", str(E(1, 2)))

sorted([1], reverse=1.5)

print(re.findall('(?i)s|\u212a|\u00df', 'S\u017f k\u1e9e'), re.findall('(?i)[^a-z]', 'K\u212a\u017f1'))

print(re.match('(?i)[\u0100-\u0200]', 's'), re.match('(?i)[^\u0100-\u0200]', 's'))

print(re.match('(?i)(\u0130)\\1', '\u0130i'), re.findall('(?a:\\w)\\w', 'a\u00e9\u00e9a'))

print(re.findall('(?ai)[k]', 'K\u212a'), '%(a' % {})

print(list({1: 2}.keys() | [3]), [1] - {1: 2}.keys(), {1: 2}.items() & [(1, 2)])

print(+collections.Counter(a=1, b=-1), -collections.Counter(a=1, b=-1), +True, +1.5)

+"a"

d = collections.OrderedDict(a=1, b=2, c=3)
d.move_to_end('c', last=False)
print(d.popitem(last=False), d.setdefault('z', default=4), d)

def g():
    yield from [1, 2]
x = g()
print(next(x), collections.Counter(None))
x.send(5)

print('x' % b'y', 'x' % [1], 'x' % range(2), 'x' % {1: 2})

'x' % {1}

'x' % collections.deque()

string.capwords(1)
""".strip("\n").split("\n\n")


@pytest.mark.parametrize("code", MENDED, ids=range(len(MENDED)))
def test_program_that_once_differed_does_what_python_does(cheap: InterpreterPool, code: str) -> None:
    assert as_python(cheap, code) == ""


# Programs that needed a kill, or that changed what the next call saw.
CONTAINED = r"""
type(object()).leak = 5

class A(string.Template):
    pass
A.delimiter = '!'
string.Template.delimiter = '#'

c = collections.Counter(range(99999))
while True:
    +c

c = collections.Counter(range(99999))
while True:
    operator.neg(c)

M = 2**61 - 1
xs = [i * M for i in range(50000)]
{}.keys() | xs

t = 1
for i in range(45):
    t = (t, t)
{0: t}.items() | set()

M = 2**61 - 1
d = {i * M: 1 for i in range(600)}
while True:
    5 * M in d.keys()

M = 2**61 - 1
d = {i * M: 1 for i in range(600)}
xs = [5 * M] * 500000
while True:
    d.keys().isdisjoint(xs)

xs = [0] * 500000
F = fractions.Fraction(1, 3)
while True:
    F in xs

while True:
    round(1e308, 1)

while True:
    f'{1e308:.2f}'

while True:
    '%.2f' % -1e308

while True:
    try:
        True << 10**9
    except Exception:
        pass
""".strip("\n").split("\n\n")


@pytest.mark.parametrize("code", CONTAINED, ids=range(len(CONTAINED)))
def test_program_that_once_got_out_of_hand_is_contained(tight: InterpreterPool, code: str) -> None:
    probe = tight.run(PROBE)
    assert contained(tight, code, probe) == ""
    assert tight.stats.kills == 0
