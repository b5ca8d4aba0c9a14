"""The restricted interpreter: what its users rely on, from everyday programs to workers that are shot."""

from __future__ import annotations

import contextlib
import io
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tool_gym.interpreter
from tool_gym.errors import ConfigError, InfrastructureError, ToolGymError
from tool_gym.interpreter import InterpreterPool, InterpreterSession, Limits, shared_pool
from tool_gym.interpreter import pool as pool_module
from tool_gym.interpreter import regex as counted
from tool_gym.interpreter.meter import METER, Output
from tool_gym.interpreter.wire import HEADER, MAX_REQUEST, FrameReader, ProtocolError, decode_reply, encode_reply
from tool_gym.tools.base import ToolResult

LONG = "i = 0\nwhile True:\n    i += 1"  # under LASTING, runs until somebody ends it
LASTING = Limits(steps=2**60, wall_seconds=60.0)


@pytest.fixture(scope="module")
def pool() -> Iterator[InterpreterPool]:
    with InterpreterPool(workers=1) as pool:
        yield pool


def out(pool: InterpreterPool, code: str, **options: Any) -> str:
    """Output of a program that must succeed."""
    result = pool.run(code, **options)
    assert result.ok, result
    return result.output


# ------------------------------------------------------------------ the answer to a call


def test_printed_text_is_the_output(pool: InterpreterPool) -> None:
    assert pool.run("print(3 + 4)") == ToolResult("ok", output="7\n", steps=2)


@pytest.mark.parametrize(
    ("code", "output"),
    [
        ("(((3+4)*2)-1)%10", "3"),
        ("None", ""),
        ("x = 5", ""),
        ("x = 5\nx", "5"),
        ("'a'", "'a'"),
        ("print(1)\n2", "1\n2"),
        ("print(1, end='')\n2", "1\n2"),
        ("[1, {'a': (2,)}]", "[1, {'a': (2,)}]"),
        ("print(1)", "1\n"),
    ],
)
def test_echo_appends_the_value_of_a_final_expression_as_a_notebook_would(
    pool: InterpreterPool, code: str, output: str
) -> None:
    assert out(pool, code, echo=True) == output


def test_without_echo_a_final_expression_says_nothing(pool: InterpreterPool) -> None:
    assert out(pool, "1 + 1") == ""


@pytest.mark.parametrize(
    ("code", "kind", "message"),
    [
        ("1 / 0", "ZeroDivisionError", "line 1: division by zero"),
        ("x = 1\ny = x +", "SyntaxError", "line 2: invalid syntax"),
        ("print((1)", "SyntaxError", "line 1: '(' was never closed"),
        ("\n\nnope", "NameError", "line 3: name 'nope' is not defined"),
        ("def f():\n    return [][3]\nf()", "IndexError", "line 2: list index out of range"),
        ("class Odd(Exception):\n    pass\nraise Odd('a\\nb')", "Odd", "line 3: a\\nb"),
        ("assert 1 == 2, 'no'", "AssertionError", "line 1: no"),
        ("{}['k']", "KeyError", "line 1: 'k'"),
        ("raise SystemExit(3)", "SystemExit", "line 1: 3"),
    ],
)
def test_error_names_its_type_and_line_in_one_line(pool: InterpreterPool, code: str, kind: str, message: str) -> None:
    result = pool.run(code)
    assert (result.status, result.kind, result.message) == ("error", kind, message)


def test_output_before_an_error_is_kept(pool: InterpreterPool) -> None:
    assert pool.run("print('so far')\n1 / 0").output == "so far\n"


def test_refusal_names_the_construct_and_the_line(pool: InterpreterPool) -> None:
    result = pool.run("x = 1\n().__class__.__base__")
    assert (result.status, result.kind) == ("refused", "PolicyError")
    assert "line 2" in result.message
    assert "__class__" in result.message


@pytest.mark.parametrize(
    "code",
    [
        "import random\nprint('REACHED', random._os)",
        "import math as _m\nprint('REACHED')",
        "from math import pi as _pi\nprint('REACHED')",
        "print('REACHED', [].__class__)",
        "print('REACHED', [].__class__.__base__.__name__)",
        "print('REACHED', (lambda: 0)._x)",
        "f = lambda: 0\nf._x = 1\nprint('REACHED')",
        "P = collections.namedtuple('P', 'a')\nP._fields = 5\nprint('REACHED')",
        "class Q(collections.namedtuple('P', 'a')):\n    _fields = 5\nprint('REACHED')",
        "P = collections.namedtuple('P', 'a', defaults=[1])\nprint('REACHED', P._defaults_)",
        "from enum import Enum\nclass C(Enum):\n    A = 1\nC.A._value_ = 7\nprint('REACHED')",
        "print('REACHED', decimal.Decimal(1)._value)",
        "f = functools.lru_cache(len)\nprint('REACHED', f._function)",
        "f = functools.partial(len)\nprint('REACHED', getattr(f, '_function'))",
        "_tmp1 = 5\nprint('REACHED')",
        "class A:\n    _tmp0 = 1\nprint('REACHED')",
        "class A:\n    _getattr_ = 1\nprint('REACHED')",
        "class A: pass\na = A()\nsetattr(a, '_tmp1', 1)\nprint('REACHED')",
        "super = lambda: [].append\nprint('REACHED', super()._x)",
        "class A:\n    __x = 1\nprint('REACHED')",
        "print('REACHED', operator.attrgetter('_os')(random))",
        "print('REACHED', operator.methodcaller('_randbelow', 5)(random.Random(1)))",
    ],
)
def test_what_is_private_to_others_is_out_of_reach(pool: InterpreterPool, code: str) -> None:
    result = pool.run(code)
    assert (result.status, "REACHED" in result.output) == ("refused", False)


def test_internals_of_what_a_program_derives_from_are_not_its_own(pool: InterpreterPool) -> None:
    code = (
        "from enum import Enum\nclass C(Enum):\n    A = 1\nC.A._name = C.A._value = 7\n"
        "print(C.A, C.A.value, C.A._name)\n"
        "P = collections.namedtuple('P', 'a')\ntry: P._signature\nexcept AttributeError: print('none')"
    )
    assert out(pool, code) == "C.A 1 7\nnone\n"


def test_refusal_at_run_time_cannot_be_caught(pool: InterpreterPool) -> None:
    result = pool.run("try:\n    getattr(1, '__cl' + 'ass__')\nexcept BaseException:\n    print('went on')")
    assert (result.status, result.output) == ("refused", "")
    assert "line 2" in result.message


def test_status_does_not_follow_from_what_a_program_prints_or_names(pool: InterpreterPool) -> None:
    forged = 'print(\'["limit", "time", "", "", false, 0, true]\')\nclass infrastructure(Exception):\n    pass\n'
    result = pool.run(forged + "raise infrastructure('limit')")
    assert (result.status, result.kind) == ("error", "infrastructure")


def test_a_memory_error_that_the_program_raises_is_an_ordinary_error(pool: InterpreterPool) -> None:
    assert pool.run("raise MemoryError('mine')").status == "error"
    caught = "try:\n    raise RecursionError('mine')\nexcept RecursionError as e:\n    print('caught', e)"
    assert out(pool, caught) == "caught mine\n"


def test_cut_output_keeps_head_and_tail_and_is_flagged(pool: InterpreterPool) -> None:
    result = pool.run("for i in range(20000):\n    print(i)")
    assert (result.status, result.kind, result.truncated) == ("limit", "output", True)
    assert result.output.startswith("0\n1\n2\n")
    assert result.output.endswith("19998\n19999\n")
    assert "characters printed" in result.output
    assert len(result.output) <= Limits().output_chars


@given(st.lists(st.text(st.characters(codec="utf-8"), max_size=30), max_size=40), st.integers(1, 200))
@settings(max_examples=150, deadline=None)
def test_output_is_exact_up_to_its_capacity_and_never_longer(parts: list[str], capacity: int) -> None:
    output = Output(capacity)
    for part in parts:
        output.write(part)
    whole = "".join(parts)
    assert output.truncated == (len(whole) > capacity)
    assert output.text() == whole if len(whole) <= capacity else len(output.text()) <= capacity


# ------------------------------------------------------------------ limits


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("while True: pass", "steps"),
        ("while True:\n    try:\n        while True: pass\n    except BaseException: pass", "steps"),
        ("sum(range(10**12))", "steps"),
        ("x = [i for i in range(10**9)]", "steps"),
        ("10**10**8", "memory"),
        ("'a'*10**10", "memory"),
        ("bytes(400_000_000)", "memory"),
        ("x = [0] * 10**7", "memory"),
        ("f'{1:{10**10}}'", "memory"),
        ("print('x' * 5_000_000)", "output"),
        ("while True: print('x')", "output"),
        ("def f(n): return f(n + 1)\nf(0)", "recursion"),
        ("x = " + "-" * 19_000 + "1", "source"),
        ("x = a" + ".b" * 9_000, "source"),
        ("#" * 20_001, "source"),
    ],
)
def test_limit_has_its_kind_and_the_next_call_is_unharmed(pool: InterpreterPool, code: str, kind: str) -> None:
    result = pool.run(code)
    assert (result.status, result.kind) == ("limit", kind), result
    assert result.message
    assert out(pool, "print('alive')") == "alive\n"


def test_limits_of_the_pool_are_what_counts() -> None:
    limits = Limits(steps=100, integer_bits=64, items=10, characters=50, output_chars=20, source_chars=60)
    kinds = {
        "for i in range(200): pass": "steps",
        "2**65": "memory",
        "[1] * 11": "memory",
        "'ab' * 26": "memory",
        "print('a' * 21)": "output",
        "#" * 61: "source",
    }
    with InterpreterPool(workers=1, limits=limits) as small:
        assert [result.kind for result in small.run_batch(list(kinds))] == list(kinds.values())
        assert out(small, "[1] * 10 and 2**60", echo=True) == str(2**60)


def test_steps_are_the_same_in_every_process_and_after_any_history(pool: InterpreterPool) -> None:
    codes = ["sorted({str(i) for i in range(50)})[:3]", "def f(n):\n    return n and f(n - 1)\nf(90)", "1 / 0"]
    pool.run_batch(["class A: pass\nxs = [A() for i in range(300)]", "while True: pass"])
    with InterpreterPool(workers=1) as fresh:
        assert pool.run_batch(codes) == fresh.run_batch(codes)


def test_program_that_hangs_is_killed_from_outside_and_the_rest_of_its_batch_is_run() -> None:
    with InterpreterPool(workers=1, limits=Limits(steps=2**60, wall_seconds=0.2)) as pool:
        start = time.monotonic()
        results = pool.run_batch(["print(1)", LONG, "print(3)"])
        assert time.monotonic() - start < 10.0
        assert [(r.status, r.kind, r.output) for r in results] == [
            ("ok", "", "1\n"),
            ("limit", "time", ""),
            ("ok", "", "3\n"),
        ]
        assert pool.stats.kills == 1


@pytest.mark.parametrize(
    ("field", "value"),
    [("steps", 0), ("steps", 1.5), ("wall_seconds", 0), ("wall_seconds", float("nan")), ("memory_bytes", 10)],
)
def test_senseless_limits_are_refused_by_name(field: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=f"limits.{field}"):
        InterpreterPool(limits=Limits(**{field: value}))


@pytest.mark.parametrize("workers", [0, -1, True, 1.0, 10_000])
def test_senseless_numbers_of_workers_are_refused(workers: Any) -> None:
    with pytest.raises(ConfigError, match="workers"):
        InterpreterPool(workers=workers)


# ------------------------------------------------------------------ inputs and state


def test_inputs_are_names_in_scope_copied_for_each_call(pool: InterpreterPool) -> None:
    data = {"xs": [1, {"k": [2]}], "n": 3, "s": "\ud800é", "t": (1, None), "m": {1: 2.5, "a": True}, "b": b"x"}
    codes = ["xs[1]['k'].append(n)\nprint(xs)", "print(xs, t, m, b, len(s))"]
    first, second = pool.run_batch(codes, inputs=data)
    assert first.output == "[1, {'k': [2, 3]}]\n"
    assert second.output == "[1, {'k': [2]}] (1, None) {1: 2.5, 'a': True} b'x' 2\n"
    assert data["xs"] == [1, {"k": [2]}]


@pytest.mark.parametrize(
    "inputs",
    [{"f": print}, {"o": object()}, {"__builtins__": {}}, {"_x": 1}, {"a b": 1}, {"for": 1}, {"x": [{1: {2}}]}],
)
def test_inputs_that_are_no_plain_data_are_refused(pool: InterpreterPool, inputs: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="inputs"):
        pool.run("1", inputs=inputs)


def test_cyclic_input_is_refused(pool: InterpreterPool) -> None:
    cycle: list[Any] = []
    cycle.append(cycle)
    with pytest.raises(ConfigError, match="inputs"):
        pool.run("1", inputs={"x": cycle})


def test_code_that_is_no_text_is_refused(pool: InterpreterPool) -> None:
    with pytest.raises(ConfigError, match="code"):
        pool.run(5)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="codes"):
        pool.run_batch("print(1)")


@pytest.mark.parametrize(
    "change",
    [
        "len = print",
        "import math\nmath = None",
        "def sorted(x): return 'mine'",
        "import random\nrandom.seed(7)\nrandom.random()",
        "random.shuffle([1, 2, 3])",
        "class ValueError(Exception): pass",
        "math.pi = 3",
        "int.real = 5",
        "del len",
    ],
)
def test_no_call_changes_what_the_next_one_sees(pool: InterpreterPool, change: str) -> None:
    probe = "print(len([1]), math.pi, sorted([2, 1]), random.random(), int('7'), ValueError('x'))"
    before = out(pool, probe)
    pool.run(change)
    assert out(pool, probe) == before


def test_finaliser_of_one_call_does_not_run_in_the_next(pool: InterpreterPool) -> None:
    left = (
        "def g():\n    try:\n        yield 1\n    finally:\n        while True: pass\nkeep = g()\nnext(keep)\nprint(1)"
    )
    assert out(pool, left) == "1\n"
    assert pool.run("print(2)") == ToolResult("ok", output="2\n", steps=2)


# ------------------------------------------------------------------ the language

# What models write all day. Each block is a program, named by the comment at its head.
EVERYDAY_SOURCE = r"""
### accumulate
total = 0
for i in range(10):
    total += i * i
print(total)
### attributes
class P:
    n = 0
    def __init__(self, x):
        self.x = x
        P.n += 1
p = P(1)
p.x += 4
P(2)
print(p.x, P.n)
del p.x
print(hasattr(p, 'x'), getattr(p, 'y', None))
### augmented evaluation
calls = []
def at(i):
    calls.append(i)
    return i
xs = [1, 2]
xs[at(1)] += at(5)
xs[0] *= 3
print(xs, calls)
### bfs
from collections import deque, defaultdict
g = defaultdict(list)
for a, b in [(1, 2), (2, 3)]:
    g[a].append(b)
q, seen = deque([1]), {1}
while q:
    for v in g[q.popleft()]:
        if v not in seen:
            seen.add(v)
            q.append(v)
print(sorted(seen), dict(g))
### builtins
print(divmod(7, 3), pow(2, 10, 1000), round(2.567, 2), abs(-3), bin(10), hex(255), int('ff', 16))
print(list(map(int, '1 2'.split())), list(zip('ab', [1, 2])), max([3, 1], key=lambda x: -x), any([0, 1]))
print(list(enumerate('ab', 1)), list(reversed([1, 2])), sum([0.5, 1]), min('b', 'a'), sorted('cab'))
### chained targets
a = b = []
a.append(1)
x = y, z = 1, 2
(p, q), *r = [(1, 2), 3, 4]
print(b, x, y, z, p, q, r)
### chained evaluation
n = []
def f():
    n.append(1)
    return (1, 2)
a, b = c = f()
print(a, b, c, n)
### classes
class A:
    def __init__(self, x):
        self.x = x
    def __repr__(self):
        return f'A({self.x})'
    def __add__(self, o):
        return A(self.x + o.x)
    def __eq__(self, o):
        return self.x == o.x
    def __hash__(self):
        return hash(self.x)
    def __len__(self):
        return 3
    def __iter__(self):
        return iter([1, 2])
    @property
    def y(self):
        return self.x * 2
    @staticmethod
    def s():
        return 's'
    @classmethod
    def c(cls):
        return cls(9)
class B(A):
    def __init__(self, x):
        super().__init__(x)
        self.z = 1
a = A(1) + B(2)
print(a, a.y, A.s(), A.c(), len(a), list(a), {A(1), A(1)}, B(2).z, isinstance(B(1), A))
### closures
def make():
    n = 0
    def inc(by=1):
        nonlocal n
        n += by
        return n
    return inc
f = make()
f()
print(f(by=4), (lambda *a, **k: (a, k))(1, x=2))
### comparison
print(1 < 2 < 3, 'a' in 'abc', 2 not in [1], None is None, (1, 'a') < (1, 'b'), [1] == [1.0], 1 != 2)
### comprehension
m = [[1, 2], [3, 4]]
print([x for r in m for x in r if x % 2], {k: v for k, v in m}, [list(r) for r in zip(*m)], sum(x * x for r in m for x in r))
### copy
import copy
a = [[1], {'k': (2,)}]
b = copy.deepcopy(a)
b[0].append(5)
print(a, b, copy.copy(a) == a)
### counter
from collections import Counter
c = Counter('hello')
c.update('l')
print(c.most_common(2), c['z'], Counter(a=1) + Counter(a=2), list(Counter(b=2).elements()))
### decorators
from functools import wraps
def twice(f):
    @wraps(f)
    def g(*a, **k):
        return f(*a, **k) * 2
    return g
@twice
def add(a, b):
    return a + b
print(add(1, b=2))
### dicts
d = {'b': 1, 'a': 2}
d['c'] = d.get('z', 0)
d.setdefault('l', []).append(1)
del d['c']
print(sorted(d.items(), key=str), d.pop('b'), list(d), max({'x': 1, 'y': 3}.items(), key=lambda t: t[1]))
print({**{'a': 1}, 'b': 2}, dict(a=1), dict([('k', 'v')]), {1: 2} | {3: 4}, d.keys(), d.values())
### dynamic programming
n = 20
dp = [[1] * (n + 1) for _ in range(n + 1)]
for i in range(1, n + 1):
    for j in range(1, n + 1):
        dp[i][j] = dp[i - 1][j] + dp[i][j - 1]
print(dp[n][n])
### exceptions
class E(Exception):
    def __init__(self, m, c):
        super().__init__(m)
        self.c = c
try:
    raise E('m', 3)
except (KeyError, E) as e:
    print(e, e.c, e.args, type(e).__name__)
else:
    print('no')
finally:
    print('finally')
try:
    int('x')
except ValueError as e:
    print(e)
try:
    {}['a']
except LookupError as e:
    print(repr(e), e)
### format
print('{:>5}|{:<5}|{:^5}|{x}'.format(1, 'a', 2.5, x=[1]), '%5.2f|%-4s|%d%%' % (3.14159, 'ab', 5))
w = 8
print(f'{3.14159:{w}.3f}|{"a"!r:>6}|{1_000_000:,}|{w=}', '%(a)s' % {'a': 1}, '{:{}}'.format(1, 5))
### fractions
from fractions import Fraction
x = Fraction(1, 3) + Fraction('1/6')
print(x, [x], x ** 2, float(x), x.numerator)
### generators
def g(n):
    got = yield 0
    while got:
        got = yield got * 2
    yield from range(n)
x = g(2)
print(next(x), x.send(4), list(x), [*g(1)], dict(zip('ab', g(3))))
### hints
from typing import Dict, List, Optional
def f(x: List[int], *a: 'no such thing', k: int = 1) -> Optional[Dict]:
    y: Dict[str, int] = {}
    z: int
    return x[0] + k
print(f([1]))
### heap
import heapq, bisect
h = []
for x in [(3, 'c'), (1, 'a')]:
    heapq.heappush(h, x)
xs = [1, 4]
bisect.insort(xs, 2)
print(heapq.heappop(h), heapq.nlargest(2, [1, 5, 3]), xs)
### idiom
def main():
    print('main')
if __name__ == '__main__':
    main()
### itertools
from itertools import accumulate, chain, combinations, count, groupby, islice, permutations, product
print(list(permutations([1, 2, 3], 2))[:3], list(combinations('abc', 2)), list(product([0, 1], repeat=2)))
print(list(chain([1], [2])), list(accumulate([1, 2, 3])), list(islice(count(5), 3)), [(k, list(g)) for k, g in groupby('aab')])
### json
import json
print(json.dumps({'a': [1, 2.5, None, True]}), json.loads('{"x": [1]}'), json.dumps([1], indent=2))
### lists
xs = [3, 1, 2]
xs.sort(reverse=True)
xs.insert(1, 9)
xs += [7]
print(xs, xs.index(9), xs.count(1), xs[::-1], xs.pop())
ys = [1, 2, 3, 4]
del ys[1:3]
ys[1:1] = [9, 9]
ys.extend(range(2))
print(ys, [1] * 3, [1] + [2], 2 in ys)
### memo
from functools import lru_cache, reduce, partial, cmp_to_key
@lru_cache(maxsize=None)
def fib(n):
    return n if n < 2 else fib(n - 1) + fib(n - 2)
print(fib(200), reduce(lambda a, b: a * b, [1, 2, 3]), partial(pow, 2)(5), sorted([3, 1, 2], key=cmp_to_key(lambda a, b: b - a)))
### numbers
print(7 // 2, -7 // 2, -7 % 3, 2 ** 100, 10 / 4, 1e3, 5j * 2, 0.1 + 0.2, ~5, 6 & 3, 6 | 3, 6 ^ 3, 1 << 5, -9 >> 1)
import math
print(math.factorial(30), math.comb(50, 25), math.gcd(12, 18), math.isqrt(10 ** 20), math.sqrt(2), math.inf)
### primes
print([p for p in range(2, 60) if all(p % d for d in range(2, int(p ** 0.5) + 1))])
### random
import random
random.seed(3)
print(random.randint(1, 10), random.choice('abc'), random.sample(range(100), 3))
xs = [1, 2, 3, 4]
random.shuffle(xs)
print(xs, random.Random(5).random(), random.choices([1, 2], k=3))
### regular expressions
import re
print(re.findall(r'(\w+)=(\d+)', 'a=1 b=22'), re.split(r'\s+', 'a b  c'))
print(re.sub(r'\d', lambda m: str(int(m.group()) + 1), 'a1b2'), re.match('a(b)?', 'ac').groups())
### sets
a, b = {3, 1, 2}, {2, 3, 4}
print(a | b, a & b, a - b, a ^ b, a <= b, {x % 3 for x in range(9)}, frozenset([2, 1]))
a.update([9])
a.discard(1)
print(sorted(a), a.isdisjoint(b), {*[1, 2], 3}, set())
### shadowing
sum = 0
for i in range(3):
    sum += i
id, input = 5, [1]
print(sum, id, input)
### sieve
n = 100000
s = [True] * (n + 1)
for i in range(2, int(n ** 0.5) + 1):
    if s[i]:
        s[i * i::i] = [False] * len(s[i * i::i])
print(sum(s) - 2)
### starred
def f(*a, **k):
    return a, k
print(f(*[1, 2], *(3,), **{'x': 1}), *range(2), sep=', ')
### statistics
import statistics as s
print(s.mean([1, 2, 3, 4]), s.median([3, 1, 2]), s.stdev([1, 2, 3]), s.mode('aab'))
### strings
s = 'Hello, World'
print(s[::-1], s.lower().count('l'), s.split(', '), s.replace('o', '0'), s.find('W'), s.title())
print('-'.join(sorted(set(s.lower()))), s.encode().hex(), ord('a'), chr(98), s.startswith(('He', 'x')), '7'.zfill(3))
print('a\tb'.expandtabs(4), ' x '.strip(), 'ab'.center(6, '*'), list(map(str.upper, ['a'])), 'x'.isalpha(), repr('\n'))
### template
from string import Template, ascii_lowercase
print(Template('$a ${b} $$').substitute(a=1, b=2), ascii_lowercase[:3])
### private members
class Stack:
    _count = 0
    def __init__(self):
        self._items = []
        Stack._count += 1
    def _grow(self, x): self._items.append(x)
    def push(self, x):
        self._grow(x)
        return self
    @property
    def _top(self): return self._items[-1]
    @classmethod
    def _made(cls): return cls._count
    def __repr__(self): return f'{self.__class__.__name__}({self._items!r})'
s = Stack().push(1).push(2)
print(s, s._top, Stack._made(), getattr(s, '_items'), hasattr(s, '_nope'), s._items)
setattr(s, '_x', 5); print(s._x)
del s._x
try: s._x
except AttributeError as e: print(e)
try: Stack._zz
except AttributeError as e: print(e)
s._items[0] += 5
s._n = 1; s._n += 2
print(s._items, s._n)
class Sub(Stack):
    def _grow(self, x): super()._grow(x * 2)
print(Sub().push(4), Sub._count, Sub.__name__)
### private names
_x = 3
def _helper(_n, *_a, _k=1, **_kw): return _n + _k
for _i in range(3): pass
print(_x, _helper(2, _k=5), _i, [_j for _j in range(2)], (_w := 4), (lambda _q: _q)(1))
def f():
    global _x
    _x = 9
f(); print(_x)
try: 1/0
except ZeroDivisionError as _e: print(_e)
class _Node: pass
print(_Node.__name__, _Node().__class__.__name__, (5).__class__.__name__, [].__class__.__name__)
_, y = 1, 2
print(_, y)
_private_long_name = 1; _1 = 2; _a_b = 3
print(_private_long_name, _1, _a_b)
def counter():
    _n = 0
    def inc():
        nonlocal _n
        _n += 1
        return _n
    return inc
c = counter(); c(); print(c())
### private fields
from dataclasses import dataclass, field
@dataclass
class P:
    _x: int = 0
    y: int = 1
print(P(_x=5), P(1)._x)
### private in a named tuple
from collections import namedtuple
P = namedtuple('P', 'x y')
class Q(P):
    def _len(self): return self.x + self.y
print(Q(1,2)._len(), Q(1,2)._replace(x=5)._asdict(), Q._fields)
### private behind a property
class A:
    def __init__(self): self._v = 0
    @property
    def v(self): return self._v
    @v.setter
    def v(self, x): self._v = x
    @staticmethod
    def _s(): return 1
    @classmethod
    def _c(cls): return cls.__name__
a = A(); a.v = 5; print(a.v, a._s(), A._c(), isinstance(A, type))
### bytes
print(b'a b'.split(), b'x'.join([b'a', b'b']), b'abc'.replace(b'b', b'c'), b'ab'.title(), b'ab'.center(5, b'*'), b'7'.zfill(3), b' a '.lstrip(), b'a-b'.partition(b'-'), b'a,b'.rsplit(b','), b'AB'.swapcase(), b'xa'.removeprefix(b'x'))
try: b'x'.join(['a'])
except TypeError as e: print(e)
try: b'x'.replace('a', 'b')
except TypeError as e: print(e)
try: b'x'.split('a')
except TypeError as e: print(e)
### delegation through many generators
def g(n):
    try:
        if n:
            return 1 + (yield from g(n - 1))
        got = []
        while True:
            try:
                x = yield len(got)
            except ValueError as error:
                x = str(error)
            if x is None:
                return 0
            got.append(x)
    finally:
        last[0] += 1
last = [0]
it = g(100)
print(next(it), it.send(1), it.throw(ValueError('q')), it.send(2), last)
try:
    next(it)
except StopIteration as end:
    print(end.value, last)
it = g(60)
next(it)
it.close()
try:
    next(it)
except StopIteration as end:
    print(end.value, last)
it = g(60)
next(it)
try:
    it.throw(KeyError('k'))
except KeyError as error:
    print(error, last)
### handlers of several kinds
class Odd(Exception):
    pass
for kinds in (ValueError, (KeyError, Odd), (Odd,) * 20, ()):
    try:
        try:
            raise Odd('x')
        except kinds as error:
            print('inner', error)
    except Odd as error:
        print('outer', error)
### ternary
x = 5
print('big' if x > 3 else 'small', not x, x and 1, 0 or 'x')
### types
print(type(1) is int, type('a') == str, isinstance(1, (int, str)), type([]), int, issubclass(bool, int), type(type(1)))
### walrus
if (n := 10) > 5:
    print(n, [y for x in range(5) if (y := x * x) > 3])
### while else
i = 0
while i < 3:
    i += 1
    if i == 5:
        break
else:
    print('done')
"""  # noqa: E501
EVERYDAY = {
    block.partition("\n")[0]: block.partition("\n")[2] for block in EVERYDAY_SOURCE.split("### ") if block.strip()
}
EVERYDAY["elif"] = "x = 39\nif x == 0:\n    print(0)\n" + "".join(
    f"elif x == {i}:\n    print({i})\n" for i in range(1, 60)
)


@pytest.mark.parametrize("name", EVERYDAY)
def test_everyday_program_prints_what_python_prints(pool: InterpreterPool, name: str) -> None:
    expected = io.StringIO()
    with contextlib.redirect_stdout(expected):
        exec(EVERYDAY[name], {"__name__": "__main__"})
    assert out(pool, EVERYDAY[name]) == expected.getvalue()


_OPERATORS = st.sampled_from(["+", "-", "*", "//", "%", "/", "**", "<<", ">>", "&"])


@given(
    st.recursive(
        st.integers(-20, 20).map(str),
        lambda inner: st.tuples(
            inner, st.sampled_from(["+", "-", "*", "//", "%", "/", "**", "<<", ">>", "&"]), inner
        ).map(lambda parts: f"({parts[0]} {parts[1]} {parts[2]})"),
        max_leaves=6,
    )
)
@settings(max_examples=200, deadline=None)
def test_arithmetic_is_that_of_python_or_a_limit(code: str) -> None:
    result = shared_pool().run(code, echo=True)
    if result.status == "limit":
        assert result.kind == "memory"
        return
    try:
        expected: tuple[str, ...] = ("ok", "", repr(eval(code)))
    except (ArithmeticError, ValueError, TypeError) as error:
        expected = ("error", type(error).__name__, "")
    assert (result.status, result.kind, result.output) == expected


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.binary(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(max_size=4) | st.integers(), inner, max_size=4)
        | st.tuples(inner, inner)
    ),
    max_leaves=12,
)


@given(_VALUES)
@settings(max_examples=150, deadline=None)
def test_plain_values_arrive_and_read_as_in_python(value: Any) -> None:
    result = shared_pool().run("[x]", inputs={"x": value}, echo=True)
    assert result.output == repr([value])


@pytest.mark.parametrize(
    ("code", "output"),
    [
        ("print({'b', 'a', 'c'}, {3, 10, 1.5}, {None, 'x', 2})", "{'a', 'b', 'c'} {1.5, 3, 10} {2, 'x', None}\n"),
        ("print([x for x in {'q', 'p'}], {'z', 'y'}.pop(), list({2, 1}))", "['p', 'q'] y [1, 2]\n"),
        ("class A:\n    pass\nprint(A(), A, print, len, lambda: 0)", None),
        ("print(hash('abc'), hash(None), hash((1, None)), random.random())", None),
    ],
)
def test_output_depends_on_no_address_and_no_hash_seed(pool: InterpreterPool, code: str, output: str | None) -> None:
    printed = out(pool, code)
    assert output is None or printed == output
    assert "0x" not in printed
    with InterpreterPool(workers=1) as fresh:
        assert out(fresh, code) == printed


# ------------------------------------------------------------------ the counted matcher

_ATOMS = (
    r"a b . [ab] [^a] \w \d \b ^ $ (a) (b|ab) (?:ab) (a*) (?=a) (?!b) (?<=a) (?<!a) \1 (?P<n>a|b) (?:a|b)+? (?i:A) "
    r"(?>a+) a++ (a)?(?(1)b|c)"
)
_PIECES = st.sampled_from(_ATOMS.split())
_QUANTIFIERS = st.sampled_from(["", "", "*", "+", "?", "*?", "+?", "{0,2}", "{2}"])
_PATTERNS = st.lists(st.tuples(_PIECES, _QUANTIFIERS).map("".join), min_size=1, max_size=4).map("".join)


def _spans(match: Any) -> Any:
    return None if match is None else (match.span(), match.groups())


def _our_spans(match: counted.Match | None) -> Any:
    return None if match is None else (match.marks[0], counted._groups(match))


@pytest.mark.filterwarnings("ignore::FutureWarning")
@given(_PATTERNS, st.text("aab b1c\n", max_size=9))
@settings(max_examples=400, deadline=None)
def test_counted_matcher_finds_what_re_finds(pattern: str, text: str) -> None:
    try:
        native = re.compile(pattern)
    except re.error:
        return
    METER.begin(Limits())
    ours = counted.compile_pattern(pattern)
    assert counted._findall(ours, text) == native.findall(text)
    assert _our_spans(counted._search(ours, text)) == _spans(native.search(text))
    assert _our_spans(counted._fullmatch(ours, text)) == _spans(native.fullmatch(text))
    assert counted._split(ours, text) == native.split(text)
    assert counted._subn(ours, r"<\g<0>>", text) == native.subn(r"<\g<0>>", text)


def test_pattern_that_backtracks_without_end_is_a_step_limit(pool: InterpreterPool) -> None:
    result = pool.run("import re\nprint(re.match('(a+)+$', 'a' * 40 + 'b'))")
    assert (result.status, result.kind) == ("limit", "steps")


# ------------------------------------------------------------------ batches and pending results


def test_batch_is_answered_in_order_and_in_full() -> None:
    with InterpreterPool(workers=2) as pool:
        codes = [f"print({i})" if i % 7 else "while True: pass" for i in range(60)]
        results = pool.run_batch(codes)
        assert [r.output for r in results] == ["" if i % 7 == 0 else f"{i}\n" for i in range(60)]
        assert pool.stats.calls == 60
        assert pool.stats.recycled == 9


def test_empty_batch_is_no_work(pool: InterpreterPool) -> None:
    assert pool.run_batch([]) == []
    pending = pool.submit([])
    assert (pending.remaining, pending.take(block=True)) == (0, [])


def test_pending_hands_out_each_result_once_with_its_index(pool: InterpreterPool) -> None:
    pending = pool.submit([f"{i} * 2" for i in range(300)], echo=True)
    seen: dict[int, str] = {}
    assert pending.remaining == 300
    while pending.remaining:
        taken = pending.take(block=True)
        assert taken
        assert not seen.keys() & {index for index, _ in taken}
        seen.update((index, result.output) for index, result in taken)
        assert pending.remaining == 300 - len(seen)
    assert seen == {i: str(i * 2) for i in range(300)}
    assert pending.take() == pending.take(block=True) == []


def test_submit_returns_at_once_and_take_without_block_does_not_wait() -> None:
    with InterpreterPool(workers=1, limits=LASTING) as pool:
        start = time.monotonic()
        pending = pool.submit([LONG])
        assert pending.take() == []
        assert time.monotonic() - start < 5.0
        assert pending.remaining == 1
    assert [(i, r.status, r.kind) for i, r in pending.take(block=True)] == [(0, "infrastructure", "closed")]


def test_results_of_different_submits_do_not_mix(pool: InterpreterPool) -> None:
    first = pool.submit(["x"] * 100, inputs={"x": "first"}, echo=True)
    second = pool.submit(["x"] * 100, inputs={"x": "second"}, echo=False)
    third = pool.run_batch(["x"] * 5, {"x": 3}, True)
    outputs = []
    for pending in (first, second):
        results: list[tuple[int, ToolResult]] = []
        while pending.remaining:
            results += pending.take(block=True)
        outputs.append({result.output for _, result in results})
    assert outputs == [{"'first'"}, {""}]
    assert [result.output for result in third] == ["3"] * 5


def test_pipes_that_are_full_both_ways_do_not_block_each_other() -> None:
    with InterpreterPool(workers=1) as pool:
        codes = [f"print('{'x' * 9000}', {i})" for i in range(400)]
        pending = pool.submit(codes)
        time.sleep(0.3)  # the worker runs until its pipe is full, and ours is full already
        results: dict[int, ToolResult] = {}
        while pending.remaining:
            results.update(pending.take(block=True))
        assert [results[i].output.split()[-1] for i in range(400)] == [str(i) for i in range(400)]


def test_pool_is_safe_from_many_threads() -> None:
    failures: list[Any] = []
    with InterpreterPool(workers=2) as pool:

        def work(me: int) -> None:
            for turn in range(10):
                results = pool.run_batch([f"print({me}, {turn}, {i})" for i in range(5)])
                if [r.output for r in results] != [f"{me} {turn} {i}\n" for i in range(5)]:
                    failures.append(results)

        threads = [threading.Thread(target=work, args=(me,)) for me in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30.0)
            assert not thread.is_alive()
    assert failures == []


def test_programs_without_end_hold_up_no_other() -> None:
    # Nobody ends the long ones: were one of them before a short one, this would not end either.
    with InterpreterPool(workers=1, limits=LASTING) as pool:
        pending = pool.submit([LONG, *(f"print({i})" for i in range(50)), LONG, LONG])
        results: dict[int, ToolResult] = {}
        while len(results) < 50:
            results.update(pending.take(block=True))
        assert [results[i + 1].output for i in range(50)] == [f"{i}\n" for i in range(50)]
        assert out(pool, "print('and later ones')") == "and later ones\n"


@pytest.mark.parametrize(
    "code",
    [
        "for i in range(5000):\n    print(i)",
        "print(sum([i for i in range(3000)]))",
        "for i in range(3000):\n    pass\n1 / 0",
        "while True:\n    print('flood')",
        "try:\n    while True: pass\nfinally:\n    print('on')",
        "for i in range(3000):\n    random.random()\nprint(random.random())",
        "len([0] * 3)\n" * 1999 + "print(1)",
    ],
)
def test_a_program_that_is_begun_again_answers_as_if_it_had_not_been(code: str, pool: InterpreterPool) -> None:
    # In a session it has all its steps at once.
    assert pool.run(code) == pool.run(code, session=InterpreterSession())


# ------------------------------------------------------------------ workers that are lost


def _running(pool: InterpreterPool) -> int:
    """Process id of the worker that runs the only long program, once it does."""
    deadline = time.monotonic() + 20.0
    while time.monotonic() < deadline:
        pool._take(pool.submit([]), block=False)
        for worker in pool._workers.values():
            if worker.slow and worker.pid and worker.calls:
                return worker.pid
        time.sleep(0.01)
    raise AssertionError("no worker started")


def test_call_of_a_worker_that_somebody_killed_is_retried() -> None:
    with InterpreterPool(workers=1, limits=LASTING) as pool:
        pending = pool.submit(["i = 0\nwhile i < 10**6:\n    i += 1\nprint(i)", "print(2)"])
        os.kill(_running(pool), signal.SIGKILL)
        results: dict[int, ToolResult] = {}
        while pending.remaining:
            results.update(pending.take(block=True))
        assert [results[0].output, results[1].output] == ["1000000\n", "2\n"]
        assert pool.stats.infrastructure_failures == 1
        assert pool.stats.kills == 0


@pytest.mark.parametrize(
    ("number", "status", "kind"),
    [(signal.SIGKILL, "infrastructure", "lost"), (signal.SIGSEGV, "limit", "crash")],
    ids=["foreign kill", "crash"],
)
def test_worker_that_dies_twice_in_one_call_is_blamed_on_who_did_it(number: int, status: str, kind: str) -> None:
    with InterpreterPool(workers=1, limits=LASTING) as pool:
        pending = pool.submit([LONG, "print('next')"])
        for _ in range(2):
            os.kill(_running(pool), number)
            before = pool.stats
            while pool.stats == before:
                pool._take(pool.submit([]), block=False)
        results: dict[int, ToolResult] = {}
        while pending.remaining:
            results.update(pending.take(block=True))
        assert (results[0].status, results[0].kind) == (status, kind)
        assert results[1].output == "next\n"


def test_a_worker_that_fails_at_a_request_is_the_machinery_s_loss_and_no_crash_of_the_program(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pool_module, "encode_request", lambda request: HEADER.pack(MAX_REQUEST + 1))
    with InterpreterPool(workers=1) as pool:
        result = pool.run("print(1)")
        assert (result.status, result.kind) == ("infrastructure", "lost")
        assert (pool.stats.crashes, pool.stats.infrastructure_failures) == (0, 2)


def test_pool_survives_the_loss_of_the_process_that_starts_its_workers() -> None:
    with InterpreterPool(workers=2) as pool:
        assert out(pool, "print(1)") == "1\n"
        zygote = pool._zygote
        assert zygote is not None
        zygote._process.kill()
        zygote._process.wait()
        assert out(pool, "print(2)") == "2\n"


@pytest.mark.parametrize("executable", ["/bin/false", "/no/such/python"])
def test_workers_that_cannot_start_are_an_infrastructure_result_and_no_exception(
    monkeypatch: pytest.MonkeyPatch, executable: str
) -> None:
    with InterpreterPool(workers=2) as pool:
        monkeypatch.setattr(sys, "executable", executable)
        results = pool.run_batch(["print(1)"] * 3)
        assert [(r.status, r.kind) for r in results] == [("infrastructure", "start")] * 3
        assert "cannot start" in results[0].message
        assert pool.stats.infrastructure_failures > 0
        monkeypatch.undo()
        assert out(pool, "print('better now')") == "better now\n"


def test_closed_pool_says_so_and_may_be_closed_again() -> None:
    pool = InterpreterPool(workers=1)
    pool.run("1")
    pool.close()
    pool.close()
    with pytest.raises(InfrastructureError, match="closed"):
        pool.run("1")
    assert issubclass(InfrastructureError, ToolGymError)


def test_shared_pool_is_one_per_process_and_works_after_a_fork() -> None:
    # In a process of its own: forking this one, with the threads of the test run, is asking for trouble.
    code = """
import os
from tool_gym.interpreter import InterpreterPool, shared_pool
assert shared_pool() is shared_pool()
assert shared_pool(workers=2) is not shared_pool()
pool = InterpreterPool(workers=1)
pool.run("1"), shared_pool().run("1")
child = os.fork()
if child == 0:
    right = pool.run("print(5)").output == "5\\n" and shared_pool().run("print(6)").output == "6\\n"
    pool.close()
    shared_pool().close()
    os._exit(0 if right else 1)
assert os.waitpid(child, 0)[1] == 0
assert pool.run("print(7)").output == "7\\n" and shared_pool().run("print(8)").output == "8\\n"
shared_pool().close()
assert shared_pool().run("print(9)").output == "9\\n"
print("right")
"""
    root = Path(tool_gym.interpreter.__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("right\n", "")


# ------------------------------------------------------------------ the processes


def test_worker_holds_nothing_of_the_host(pool: InterpreterPool) -> None:
    pool.run("1")
    if sys.platform != "linux":
        pytest.skip("reads /proc")
    pid = next(iter(pool._workers.values())).pid
    zygote = pool._zygote
    assert zygote is not None
    environment = Path(f"/proc/{zygote._process.pid}/environ").read_bytes()
    assert environment == b"PYTHONHASHSEED=0\0"
    assert len(os.listdir(f"/proc/{pid}/fd")) == 4  # three times /dev/null, and its channel
    maps = Path(f"/proc/{pid}/maps").read_text()
    assert "torch" not in maps
    assert "numpy" not in maps


@pytest.mark.skipif(sys.platform != "linux", reason="the layers are Linux's")
def test_confined_process_cannot_open_start_or_signal_anything() -> None:
    code = """
import importlib, os, socket, sys, types
package = types.ModuleType("sandbox")
package.__path__ = [sys.argv[1]]
sys.modules["sandbox"] = package
layers = importlib.import_module("sandbox.hardening").confine(1 << 28)
attempts = {
    "memory limit": lambda: bytearray(1 << 30),
    "landlock": lambda: os.open("/etc/passwd", os.O_RDONLY),
    "seccomp": lambda: os.fork(),
    "seccomp ": lambda: socket.socket(),
    "seccomp  ": lambda: os.kill(os.getppid(), 0),
    "seccomp   ": lambda: os.open("/dev/null", os.O_RDONLY),
    "seccomp    ": lambda: os.execv("/bin/true", ["true"]),
}
for layer, attempt in attempts.items():
    try:
        attempt()
    except (MemoryError, PermissionError):
        continue
    if layers[layer.strip()]:
        os.write(1, layer.encode())
        os._exit(1)
os.write(1, repr(sorted(layers)).encode())
os._exit(0)
"""
    folder = str(Path(tool_gym.interpreter.__file__).parent)
    done = subprocess.run([sys.executable, "-c", code, folder], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "['landlock', 'memory limit', 'no new privileges', 'seccomp']"


def test_pool_tells_which_layers_confine_its_workers(pool: InterpreterPool) -> None:
    pool.run("1")
    assert set(pool.layers) == {"memory limit", "no new privileges", "landlock", "seccomp"}


def test_workers_end_with_the_process_that_owns_the_pool() -> None:
    code = """
import os
from tool_gym.interpreter import InterpreterPool
pool = InterpreterPool(workers=2)
pool.run_batch(["1"] * 4)
print(pool._zygote._process.pid, *[worker.pid for worker in pool._workers.values()], flush=True)
os.kill(os.getpid(), 9)
"""
    root = Path(tool_gym.interpreter.__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, timeout=60)
    deadline = time.monotonic() + 20.0
    left = [int(pid) for pid in done.stdout.split()]
    assert len(left) >= 2
    while left and time.monotonic() < deadline:
        left = [pid for pid in left if Path(f"/proc/{pid}/cmdline").exists() and b"worker.py" in _cmdline(pid)]
        time.sleep(0.02)
    assert left == []


def _cmdline(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


# ------------------------------------------------------------------ the channel


@given(st.lists(st.binary(max_size=50), max_size=10), st.lists(st.integers(1, 40), max_size=30))
@settings(deadline=None)
def test_frames_survive_any_cutting_of_the_stream(payloads: list[bytes], cuts: list[int]) -> None:
    stream = b"".join(len(payload).to_bytes(4, "big") + payload for payload in payloads)
    reader, found = FrameReader(longest=50), []
    for cut in [*cuts, len(stream) or 1]:
        found += reader.feed(stream[:cut])
        stream = stream[cut:]
    assert found == payloads


def test_frame_beyond_its_cap_is_refused_before_it_arrives() -> None:
    with pytest.raises(ProtocolError):
        FrameReader(longest=50).feed((51).to_bytes(4, "big"))


GOOD = ("ok", "", "", "text", False, 3)
FRAMED = encode_reply(GOOD, last=False)[4:]


def test_sound_reply_is_taken_as_it_is() -> None:
    assert decode_reply(FRAMED, 10) == (GOOD, False)
    cut = ("limit", "output", "é printed", "\U0001f600 …", True, 2**40)
    assert decode_reply(encode_reply(cut, last=True)[4:], 10) == (cut, True)


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        FRAMED[:13],
        b"\xff" + FRAMED[1:],
        FRAMED[:1] + b"\x04" + FRAMED[2:],
        FRAMED + b"\xff",
        FRAMED + b"x" * 7,
        FRAMED[:-4] + b"k" * 300,
        FRAMED[:10] + b"\x00\xff" + FRAMED[12:] + b"k" * 300,
        FRAMED[:12] + b"\xff\xff" + FRAMED[14:],
    ],
)
def test_reply_that_no_sound_worker_sends_is_refused(payload: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode_reply(payload, 10)


@given(st.binary(max_size=40))
def test_any_reply_is_sound_or_refused(payload: bytes) -> None:
    with contextlib.suppress(ProtocolError):
        record, _ = decode_reply(payload, 10)
        assert len(record[3]) <= 10


_BROAD = """parts = []
for i in range(1000):
    class B:
        pass
    parts.append(B)
class C(*parts):
    pass
"""
# Each once ran its million steps for longer than the wall clock allows: a cost that was not charged.
COSTLY = {
    "set looked up": ("S = set(range(200000))", "S in {1}"),
    "set removed": ("S = set(range(200000))\nT = {1}", "T.remove(S)"),
    "set discarded": ("S = set(range(200000))\nT = {1}", "T.discard(S)"),
    "fraction hashed": ("F = fractions.Fraction((1 << 120000) - 1, (1 << 119999) + 1)", "hash(F)"),
    "fraction as key": ("F = fractions.Fraction((1 << 120000) - 1, (1 << 119999) + 1)\nd = {}", "d[F] = 1"),
    "fractions compared": ("F = fractions.Fraction((1 << 20000) - 1, (1 << 19999) + 1)\nG = F + 1", "min(F, G)"),
    "fractions sorted": ("F = [fractions.Fraction((1 << 20000) - i, 1 << 19999) for i in range(9)]", "sorted(F)"),
    "fractions averaged": (
        "F = [fractions.Fraction((1 << 2000) - i, (1 << 1999) + i) for i in range(1, 101)]",
        "statistics.stdev(F)",
    ),
    "comb": ("n = (1 << 250000) - 1\nk = (1 << 125000) - 3", "math.comb(n, k)"),
    "shift by much": ("b = (1 << 250000) - 1", "3 >> b"),
    "float of bytes": ("b = b'1' * 3000000", "float(b)"),
    "complex of text": ("s = '1' * 3000000", "complex(s)"),
    "text in an error": ("s = 'a' * 1000000", "random.randrange(s)"),
    "tee": ("s = 'a' * 3000000", "itertools.tee('a*b', s)"),
    "nested kinds": ("x = int\nfor i in range(60):\n    x = (x, x)", "isinstance('a', x)"),
    "long body": ("x = 7", "; ".join(["x + x"] * 2000)),
    "long comprehension": ("x = 7", f"[({', '.join(['x * x'] * 2000)}) for _ in range(1000)]"),
    "long function": (f"x = 7\ndef f():\n    {'; '.join(['x is x'] * 2000)}", "f()"),
    "long lambda": (f"x = 7\nf = lambda: ({', '.join(['-x'] * 2000)})", "f()"),
    "attributes": ("class A:\n    pass\na = A()\na.b = 1", "; ".join(["a.b"] * 2000)),
    "short difference": ("B = 1 << 250000", "B - B"),
    "short sum": ("B = 1 << 250000\nC = -B", "B += C; B -= C"),
    "many kinds handled": (
        "kinds = (ValueError,) * 1000000",
        "try: 1 / 0\n        except kinds: pass",
    ),
    "error of an error": (
        "last = ValueError()",
        "try:\n            try: raise last\n            except ValueError: raise ValueError(1)\n"
        "        except ValueError as error: last = error",
    ),
    "text of a broad class": (f"{_BROAD}x = C()", "str(x)"),
    "key of a broad class": (f"{_BROAD}x = C()\nd = {{x: 1}}", "d[x]"),
    "attribute of a broad class": (f"{_BROAD}parts[-1].last = 1", "C.last"),
    "deep delegation": (
        "def g(n):\n    if n:\n        yield from g(n - 1)\n    while True:\n        yield n\nit = g(900)",
        "next(it)",
    ),
    "delegation from within": (
        "def leaf():\n    while True:\n        yield 1\ndef g(inner):\n    yield from inner\n"
        "it = leaf()\nfor i in range(900):\n    next(it)\n    it = g(it)",
        "next(it)",
    ),
    "item deleted": ("L = [1] * 1000000", "del L[0]; L.append(1)"),
    "item of a deque deleted": ("D = collections.deque([1] * 1000000)", "del D[500000]; D[500000] = 1; D.append(1)"),
    "many names": ("names = {str(i): i for i in range(100000)}", "dict(**names)"),
    "values of views": (
        "x = y = 0\nfor i in range(70):\n    x, y = [x, x], [y, y]",
        "{1: x}.items() & {1: y}.items()",
    ),
    "slices of slices": (
        "x = y = 0\nfor i in range(70):\n    x, y = slice(x, x, x), slice(y, y, y)",
        "x == y; [x].index(y); {x: 1}",
    ),
    "methods of classes": ("x = 1", "classmethod(x)"),
    "digits of a number": ("n = 10**300", "f'{n:,}'"),
}


@pytest.fixture(scope="module")
def patient() -> Iterator[InterpreterPool]:
    """A pool that waits three times as long as others: a machine that is slow, or busy, is no fault of the budgets."""
    with InterpreterPool(workers=1, limits=Limits(wall_seconds=3 * Limits().wall_seconds)) as pool:
        yield pool


@pytest.mark.parametrize("name", list(COSTLY))
def test_what_costs_time_costs_steps_so_that_no_call_needs_the_external_kill(
    name: str, patient: InterpreterPool
) -> None:
    pool = patient
    before, (start, loop) = pool.stats.kills, COSTLY[name]
    code = f"{start}\nwhile True:\n    try:\n        {loop}\n    except Exception:\n        pass"
    result = pool.run(code)
    assert (result.status, result.kind in ("steps", "memory")) == ("limit", True)
    assert pool.stats.kills == before
    assert pool.run(start).ok


@pytest.mark.parametrize(
    ("short", "long"),
    [
        ("for i in range(100):\n    {}", ";".join(["x"] * 400)),
        ("i = 0\nwhile (i := i + 1) < 100 and {}:\n    pass", f"({','.join(['x'] * 400)})"),
        ("def f():\n    {}\nfor i in range(100):\n    f()", ";".join(["x"] * 400)),
        ("f = lambda: ({})\nfor i in range(100):\n    f()", ",".join(["x"] * 400)),
        ("[({}) for i in range(100)]", ",".join(["x"] * 400)),
        ("{{i: ({}) for i in range(100)}}", ",".join(["x"] * 400)),
        ("list(({}) for i in range(100))", ",".join(["x"] * 400)),
        ("[i for i in range(100) if ({})]", ",".join(["x"] * 400)),
        ("[j for i in range(100) for j in ({})[:0]]", ",".join(["x"] * 400)),
        ("[j for i in [({})] for j in range(100)]", ",".join(["x"] * 400)),
    ],
)
def test_a_turn_costs_steps_by_what_stands_in_it(pool: InterpreterPool, short: str, long: str) -> None:
    least = pool.run("x = 1\n" + short.format("x,")).steps
    steps = pool.run("x = 1\n" + short.format(long)).steps
    once = "for i in [(" in short  # that of the first iterable is evaluated once
    assert least + (0 if once else 100 * 400 // 16) <= steps <= least + (99 if once else 100 * 2 * 400 // 16 + 100)


def test_what_has_little_in_it_costs_a_step_a_turn(pool: InterpreterPool) -> None:
    steps = [pool.run(f"x = 1\nfor i in range({turns}):\n    x += i % 3").steps for turns in (100, 1100)]
    assert steps[1] - steps[0] == 1000


@pytest.mark.skipif(sys.platform != "linux", reason="asks the processor clock of another process")
def test_a_worker_that_is_stopped_from_outside_is_infrastructure_and_its_call_is_tried_again() -> None:
    with InterpreterPool(workers=1, limits=Limits(wall_seconds=0.3)) as pool:
        assert pool.run("1 + 1", echo=True).output == "2"
        (worker,) = pool._workers.values()
        os.kill(worker.pid, signal.SIGSTOP)
        assert pool.run("2 + 2", echo=True).output == "4"
        assert pool.stats.infrastructure_failures == 1
        assert pool.stats.kills == 0


def test_calls_of_a_parent_are_not_waited_for_in_a_forked_child() -> None:
    code = """
import os, sys
from tool_gym.errors import InfrastructureError
from tool_gym.interpreter import InterpreterPool
with InterpreterPool(workers=1) as pool:
    pending = pool.submit(["1 + 1"] * 100, echo=True)
    child = os.fork()
    if not child:
        try:
            pending.take(block=True)
        except InfrastructureError:
            os._exit(0 if pool.run("3", echo=True).output == "3" else 2)
        os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
    got = []
    while pending.remaining:
        got += pending.take(block=True)
    assert sorted(index for index, _ in got) == list(range(100))
    assert {result.output for _, result in got} == {"2"}
"""
    root = Path(__file__).resolve().parent.parent
    subprocess.run([sys.executable, "-c", code], cwd=root, check=True, timeout=60)
