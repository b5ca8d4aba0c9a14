# ruff: noqa: E501
"""The façades of standard modules: everyday programs print what Python prints, hostile ones end within their limits."""

from __future__ import annotations

import contextlib
import decimal
import io
import string
import sys
import textwrap
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tool_gym.interpreter import InterpreterPool, InterpreterSession, Limits
from tool_gym.interpreter.facades import decimals, texts
from tool_gym.interpreter.meter import METER
from tool_gym.interpreter.values import to_format

# What models write all day. Each block is a program, named by the comment at its head.
EVERYDAY_SOURCE = r"""
### abc
from abc import ABC, abstractmethod
class Shape(ABC):
    def __init__(self, name):
        self.name = name
    @abstractmethod
    def area(self):
        pass
    @property
    @abstractmethod
    def sides(self):
        pass
    def describe(self):
        return f'{self.name}: {self.area():.2f}, {self.sides} sides'
class Square(Shape):
    def __init__(self, a):
        super().__init__('square')
        self.a = a
    def area(self):
        return self.a ** 2
    @property
    def sides(self):
        return 4
class Half(Shape):
    def area(self):
        return 0
print(Square(3).describe(), isinstance(Square(1), Shape), issubclass(Square, ABC))
import abc
class Old(metaclass=abc.ABCMeta):
    @abc.abstractmethod
    def f(self):
        pass
class Young(Old):
    def f(self):
        return super().f()
print(Young().f())
for kind in (Shape, Half, lambda x: Old()):
    try:
        kind('x')
    except TypeError as e:
        print(e)
### abstract kinds
import collections.abc
from collections.abc import Iterable, Sequence, Mapping, Callable, Hashable, Iterator, Sized, Set, MutableMapping
values = [1, 'a', [1], (1,), {1: 2}, {1}, range(3), (i for i in []), len, lambda: 0, None, 1.5, b'x', frozenset()]
for kind in (Iterable, Sequence, Mapping, Callable, Hashable, Iterator, Sized, Set, MutableMapping, collections.abc.Collection):
    print([isinstance(value, kind) for value in values])
class Own:
    def __iter__(self):
        return iter([])
    def __len__(self):
        return 0
class Equal:
    def __eq__(self, other):
        return True
print([isinstance(Own(), kind) for kind in (Iterable, Sized, Sequence, Callable, Hashable, collections.abc.Collection)])
print(isinstance(Equal(), Hashable), issubclass(list, Sequence), issubclass(Own, Iterable), isinstance(Own, Callable))
print(isinstance(5, (str, Iterable)), isinstance('5', (int, Iterable)))
### abstract kinds derived
from collections.abc import Iterator, Mapping, MutableMapping, MutableSequence, Sequence
class Countdown(Iterator):
    def __init__(self, n):
        self.n = n
    def __next__(self):
        if self.n <= 0:
            raise StopIteration
        self.n -= 1
        return self.n
class Squares(Sequence):
    def __init__(self, n):
        self.n = n
    def __len__(self):
        return self.n
    def __getitem__(self, i):
        if not 0 <= i < self.n:
            raise IndexError(i)
        return i * i
class Lower(MutableMapping):
    def __init__(self):
        self.data = {}
    def __getitem__(self, k):
        return self.data[k.lower()]
    def __setitem__(self, k, v):
        self.data[k.lower()] = v
    def __delitem__(self, k):
        del self.data[k.lower()]
    def __iter__(self):
        return iter(self.data)
    def __len__(self):
        return len(self.data)
class Loud(MutableSequence):
    def __init__(self):
        self.items = []
    def __getitem__(self, i):
        return self.items[i]
    def __setitem__(self, i, v):
        self.items[i] = v
    def __delitem__(self, i):
        del self.items[i]
    def __len__(self):
        return len(self.items)
    def insert(self, i, v):
        self.items.insert(i, v)
print(list(Countdown(3)), list(Squares(4)), 9 in Squares(5), list(reversed(Squares(3))), Squares(5).index(4), Squares(3).count(1))
m = Lower()
m['A'] = 1
m.update({'B': 2}, c=3)
print(list(m.items()), m.get('z', 0), 'a' in m, m.pop('B'), m.setdefault('D', 4), len(m), dict(m), m == {'a': 1, 'c': 3, 'd': 4})
xs = Loud()
xs.append(1)
xs.extend([2, 3])
xs += [4]
xs.reverse()
xs.remove(2)
print(list(xs), xs.pop(), len(xs))
try:
    Mapping()
except TypeError as e:
    print('abstract')
### chain map
from collections import ChainMap
base, over = {'a': 1, 'b': 2}, {'b': 3}
c = ChainMap(over, base)
print(c['a'], c['b'], c.get('z'), 'a' in c, len(c), list(c), dict(c), c)
c['a'] = 9
d = c.new_child({'x': 0})
print(over, base, d['x'], d.parents == c, c.maps)
del c['a']
try:
    c['nope']
except KeyError as e:
    print('KeyError', e)
### complex
import cmath, math
z = 3 + 4j
print(abs(z), cmath.phase(1j), cmath.polar(1j), cmath.sqrt(-1), cmath.exp(1j * math.pi).real, cmath.isclose(1j, 1j + 1e-12))
print(cmath.rect(2, 0), cmath.log(1), cmath.inf, [round(cmath.exp(2j * math.pi * k / 3).real, 6) for k in range(3)])
### context of decimals
from decimal import Decimal, getcontext, localcontext, ROUND_HALF_UP, Context, setcontext
getcontext().prec = 50
print(Decimal(1) / 7, Decimal(2).sqrt())
getcontext().rounding = ROUND_HALF_UP
print(Decimal('2.675').quantize(Decimal('0.01')), getcontext().prec, getcontext().rounding)
with localcontext() as ctx:
    ctx.prec = 5
    print(Decimal(1) / 3)
print(Decimal(1) / 3)
with localcontext(Context(prec=3)):
    print(Decimal(2) / 3)
ctx = Context(prec=4)
print(ctx.divide(Decimal(1), Decimal(3)), ctx.create_decimal('1.23456'), ctx.sqrt(2), ctx.power(2, 10), ctx)
print(getcontext().copy().prec)
setcontext(Context(prec=6))
print(Decimal(22) / 7)
### counter and ordered dictionary
from collections import Counter, OrderedDict
d = OrderedDict(a=1, b=2, c=3)
d.move_to_end('a')
d.move_to_end('c', last=False)
print(d, d.popitem(last=False), d.popitem(), list(d))
c = Counter('abracadabra')
print(c.most_common(1), c - Counter('aab'), c & Counter('abz'), sum(c.values()), +Counter(a=1, b=-1), c.total())
### dataclass
from dataclasses import dataclass, field, asdict, astuple, replace, fields, is_dataclass
@dataclass
class Item:
    name: str
    price: float = 1.5
    tags: list = field(default_factory=list)
    secret: int = field(default=0, repr=False, compare=False)
    def total(self, n):
        return self.price * n
a, b = Item('pen'), Item('pen', tags=['x'])
b.tags.append('y')
print(a, b, a == Item('pen'), a == b, a != b, a.total(4))
print(asdict(b), astuple(a), replace(a, price=2), [f.name for f in fields(Item)], is_dataclass(a), is_dataclass(3))
@dataclass(frozen=True, order=True)
class P:
    x: int
    y: int = 0
print(P(1) < P(1, 2), sorted([P(2), P(1, 5), P(1)]), {P(1): 'a'}[P(1, 0)], max(P(3), P(2)), hash(P(1)) == hash(P(1, 0)))
try:
    P(1).x = 5
except AttributeError as e:
    print(type(e).__name__, e)
@dataclass
class Base:
    a: int
    b: int = 2
@dataclass
class Derived(Base):
    c: int = 3
    def __post_init__(self):
        self.d = self.a + self.b + self.c
print(Derived(1), Derived(1, c=9).d, Derived(1) == Base(1))
for call in (lambda: P(), lambda: P(1, 2, 3), lambda: P(1, z=2), lambda: P(1, x=2), lambda: Item(), lambda: Item(1, 2, 3, 4, 5)):
    try:
        call()
    except TypeError as e:
        print(e)
@dataclass
class Node:
    value: int
    children: list['Node'] = field(default_factory=list)
    parent: 'Node' = None
n = Node(1, [Node(2), Node(3, [Node(4)])])
print(n, asdict(n))
n.parent = n
print(n)
### dataclass details
from dataclasses import dataclass, field, InitVar, KW_ONLY, FrozenInstanceError
from typing import ClassVar, Optional, List
@dataclass(eq=False)
class A:
    x: int
    count: ClassVar[int] = 0
    def __eq__(self, other):
        return True
print(A(1) == A(2), A.count, A(1))
@dataclass(kw_only=True)
class B:
    x: int = 0
    y: int
print(B(y=3))
@dataclass(repr=False, init=False)
class C:
    x: int = 4
    def __repr__(self):
        return f'C<{self.x}>'
print(C(), C.x)
def attempt(define):
    try:
        define()
    except (TypeError, ValueError) as e:
        print(type(e).__name__, e)
def mutable():
    @dataclass
    class D:
        xs: list = []
def order():
    @dataclass
    class D:
        x: int = 0
        y: int
def unannotated():
    @dataclass
    class D:
        x = field(default=1)
def frozen_base():
    @dataclass(frozen=True)
    class D:
        x: int
    @dataclass
    class E(D):
        y: int
def orders():
    @dataclass(order=True)
    class D:
        x: int
        def __lt__(self, other):
            return True
for define in (mutable, order, unannotated, frozen_base, orders):
    attempt(define)
@dataclass(unsafe_hash=True)
class F:
    x: int
    y: int = field(default=0, hash=False)
print(hash(F(1, 2)) == hash(F(1, 3)), len({F(1), F(1), F(2)}))
@dataclass
class G:
    x: int
try:
    {G(1)}
except TypeError as e:
    print(e)
from abc import ABC, abstractmethod
from typing import Generic, TypeVar
T = TypeVar('T')
@dataclass
class Animal(ABC):
    'With a docstring.'
    name: str
    sounds: List[str] = field(default_factory=list, init=False)
    size: InitVar[int] = 1
    def __post_init__(self, size):
        self.sounds.append(self.sound() * size)
    @abstractmethod
    def sound(self) -> str: ...
    @classmethod
    def twice(cls, name):
        return cls(name, 2)
@dataclass
class Dog(Animal):
    age: int = 3
    def sound(self):
        return 'wuff'
    def __post_init__(self, size):
        super().__post_init__(size)
        self.age += 1
print(Dog.twice('Rex'), Dog('Max', age=5).age)
@dataclass
class Box(Generic[T]):
    content: T
print(Box[int](3), Box('x').content)
class Outer:
    @dataclass
    class Inner:
        z: Optional[List[int]] = None
print(Outer.Inner())
### decimals
from decimal import Decimal as D, InvalidOperation, DivisionByZero, ROUND_DOWN, ROUND_HALF_EVEN, ROUND_UP
a, b = D('0.1'), D('0.2')
print(a + b, a - b, a * b, a / b, a // b, a % b, -a, abs(D(-1)), a ** 2, D(2) ** D('0.5'), divmod(D(7), 2))
print(a + 1, 1 - a, 2 * a, 1 / a, 7 // D(2), 7 % D(4), 2 ** D(3), pow(D(2), 10), sum([a, b, D(1)]), max(a, b), sorted([b, a]))
print(a == D('0.10'), a < b, a != b, D(1) == 1, D('0.5') == 0.5, a < 1, 1 > a, D(2) >= 2.0, hash(D(1)) == hash(1), {1: 'x'}[D(1)])
print(repr(a), str(a), [a], f'{D("3.14159"):.2f}|{D("1234567.891"):,.2f}|{D("5"):>6}|{D("0.000001")}|{D("1e3")}|{D("12"):e}', '%s %.3f %d' % (a, a, D(7)))
print(round(D('2.5')), round(D('2.675'), 2), int(D('7.9')), float(a), bool(D(0)), D('7.9') // 1, D('2.5').quantize(D('1'), rounding=ROUND_HALF_EVEN))
print(D('1.005').quantize(D('0.01'), ROUND_UP), D('9.999').quantize(D('.1'), rounding=ROUND_DOWN), D(2).sqrt(), D(1).exp(), D(10).ln(), D(1000).log10())
print(D('1.50').normalize(), D('120').normalize(), D('1.50').as_tuple(), D('-3.7').to_integral_value(), D('0.125').as_integer_ratio(), D('123.456').adjusted())
print(D('NaN').is_nan(), D('inf') > 5, D('-0').is_signed(), D('1e3').is_finite(), D(5).is_zero(), D('3').compare(D(4)), D(3).max(D(4)), D('-1').copy_abs())
print(D(0.1), D.from_float(0.5), D((0, (1, 2, 3), -2)), D('  12 '), D('1_000'), D('1E+5').to_eng_string(), D('Infinity'), D('1e-7'))
for bad in (lambda: D('x'), lambda: D(1) / 0, lambda: D('inf') - D('inf'), lambda: a + 0.1, lambda: D([]), lambda: D(None), lambda: D('NaN') < 1, lambda: int(D('inf'))):
    try:
        print(bad())
    except (InvalidOperation, DivisionByZero, TypeError, ValueError, OverflowError) as e:
        print(type(e).__name__, e)
try:
    D(1) / D(0)
except ZeroDivisionError:
    print('as ZeroDivisionError')
from fractions import Fraction
import math, statistics
print(Fraction(D('0.25')), D('0.25') == Fraction(1, 4), D('0.3') < Fraction(1, 3), math.floor(D('2.7')), math.ceil(D('2.1')), math.sqrt(D(4)), math.trunc(D('-2.5')))
print(statistics.mean([D('0.1'), D('0.3')]), statistics.stdev([D(1), D(2), D(4)]), isinstance(a, D), type(a), D(10).fma(2, 3), D('1.1').same_quantum(D('2.2')))
total = D('0')
for i in range(10):
    total += D('0.1')
print(total, total == 1, D('10').remainder_near(3), D('1.23').scaleb(2), D(7).logical_and(D(1)) if False else '')
### decimals in a class
from decimal import Decimal
class Account:
    def __init__(self, balance='0'):
        self.balance = Decimal(balance)
    def deposit(self, amount):
        if amount <= 0:
            raise ValueError('amount must be positive')
        self.balance += Decimal(str(amount))
        return self.balance
a = Account('10.50')
print(a.deposit(0.1), a.deposit(3), {'total': a.balance}, (a.balance,))
def pi(digits):
    from decimal import getcontext
    getcontext().prec = digits + 5
    k, a, b = 0, Decimal(0), Decimal(1)
    a, b, t, p = Decimal(1), 1 / Decimal(2).sqrt(), Decimal('0.25'), Decimal(1)
    for _ in range(8):
        n = (a + b) / 2
        b = (a * b).sqrt()
        t -= p * (a - n) ** 2
        a, p = n, 2 * p
    return str((a + b) ** 2 / (4 * t))[:digits]
print(pi(60))
### enumeration
from enum import Enum, IntEnum, auto, unique
class Color(Enum):
    RED = 1
    GREEN = 2
    BLUE = 3
    CRIMSON = 1
    def pretty(self):
        return self.name.title()
    @classmethod
    def first(cls):
        return cls.RED
    @property
    def double(self):
        return self.value * 2
print(Color.RED, repr(Color.RED), Color.RED.name, Color.RED.value, Color(2), Color['BLUE'], list(Color), len(Color))
print(Color.RED is Color.CRIMSON, Color.RED == Color(1), Color.RED != Color.BLUE, Color.GREEN.pretty(), Color.first(), Color.BLUE.double)
print(isinstance(Color.RED, Color), Color.RED in Color, {Color.RED: 'r'}[Color.RED], f'{Color.RED} {Color.BLUE:>12}|', Color, type(Color.RED))
print([c.name for c in Color], dict(zip(Color, 'abc')), Color.__members__, [c.value for c in reversed(Color)] )
for bad in (lambda: Color(9), lambda: Color['PINK'], lambda: Color.RED < Color.BLUE):
    try:
        bad()
    except (ValueError, KeyError, TypeError) as e:
        print(type(e).__name__, e)
class Level(IntEnum):
    LOW = 1
    MID = 5
    HIGH = 10
print(Level.LOW < Level.HIGH, Level.MID + 1, Level.HIGH * 2, max(Level), sorted([Level.HIGH, Level.LOW]), Level.LOW == 1, [10, 20][Level.LOW], int(Level.MID))
print(f'{Level.LOW}', str(Level.MID), repr(Level.HIGH), '%d' % Level.HIGH, 2 ** Level.MID, Level(5), isinstance(Level.LOW, int), {1: 'one'}[Level.LOW], range(Level.MID))
class Auto(Enum):
    A = auto()
    B = auto()
    C = 10
    D = auto()
print([m.value for m in Auto])
class Planet(Enum):
    EARTH = (5.9, 6.4)
    MARS = (0.6, 3.4)
    def __init__(self, mass, radius):
        self.mass = mass
        self.radius = radius
    def __str__(self):
        return f'{self.name}:{self.mass}'
print(Planet.EARTH, Planet.MARS.radius, Planet((0.6, 3.4)) is Planet.MARS, [str(p) for p in Planet])
try:
    @unique
    class Twice(Enum):
        X = 1
        Y = 1
except ValueError as e:
    print(e)
try:
    class More(Color):
        PINK = 4
except TypeError as e:
    print(e)
try:
    Color.RED = 7
except AttributeError as e:
    print(e)
Color.extra = 5
print(Color.extra, max(Color, key=lambda c: c.value), sorted(Color, key=lambda c: -c.value), list(zip(Color, 'ab')))
Direction = Enum('Direction', 'NORTH SOUTH')
print(Direction.SOUTH, list(Direction))
class Shape(Enum):
    ROUND = [1, 2]
    FLAT = {'a': 1}
print(Shape([1, 2]), Shape.FLAT.value)
### functions
from functools import lru_cache, cache, total_ordering, cached_property, partial, reduce, wraps, singledispatch, cmp_to_key
@lru_cache(maxsize=2)
def f(x, y=0):
    return x + y
print(f(1), f(1), f(2), f(3), f(1), f.cache_info(), f(1, y=2), f.__name__)
f.cache_clear()
print(f.cache_info(), f.cache_info().hits)
class Fib:
    def __init__(self):
        self.calls = 0
    @cache
    def at(self, n):
        self.calls += 1
        return n if n < 2 else self.at(n - 1) + self.at(n - 2)
    @cached_property
    def big(self):
        self.calls += 100
        return self.at(30)
x = Fib()
print(x.at(20), x.calls, x.big, x.big, x.calls)
@total_ordering
class V:
    def __init__(self, n):
        self.n = n
    def __eq__(self, o):
        return self.n == o.n
    def __lt__(self, o):
        return self.n < o.n
print(V(1) <= V(2), V(1) > V(2), V(2) >= V(2), V(1) < V(2), V(1) != V(2), max([V(1), V(3), V(2)], key=lambda v: v.n).n)
p = partial(int, base=2)
print(p('101'), p.keywords, partial(max, 5)(3, 9), partial(partial(lambda *a: a, 1), 2)(3))
def log(fn):
    @wraps(fn)
    def inner(*args):
        return fn.__name__, fn(*args)
    return inner
@log
def area(w, h):
    return w * h
print(area(2, 3), area.__name__)
@singledispatch
def show(x):
    return 'object'
@show.register(int)
def _(x):
    return f'int {x}'
@show.register(list)
def _(x):
    return f'list of {len(x)}'
print(show(1), show([1]), show('a'), show(True))
print(sorted('bca', key=cmp_to_key(lambda a, b: (a > b) - (a < b))), reduce(lambda a, b: a + b, [1, 2], 10))
### heaps
import heapq, bisect
print(list(heapq.merge([1, 4], [2, 3], [0])), list(heapq.merge('ad', 'bc', reverse=False)), list(heapq.merge([3, 1], [2], reverse=True)))
print(heapq.nlargest(2, [1, 5, 3], key=lambda x: -x), bisect.bisect_left([1, 2, 3], 2, lo=0, hi=2), bisect.bisect([1, 2, 2], 2))
xs = []
bisect.insort(xs, 3, key=lambda x: -x)
bisect.insort_left(xs, 5, key=lambda x: -x)
print(xs, bisect.bisect_right((1, 2), 1))
### hints
from typing import Any, Callable, Dict, Generic, Iterable, List, NamedTuple, NewType, Optional, Protocol, Tuple, TypedDict, TypeVar, Union, cast, overload, TYPE_CHECKING, runtime_checkable
T = TypeVar('T')
Grid = List[List[int]]
Vector = list[float]
UserId = NewType('UserId', int)
class Stack(Generic[T]):
    def __init__(self) -> None:
        self.items: List[T] = []
    def push(self, item: T) -> None:
        self.items.append(item)
    def pop(self) -> Optional[T]:
        return self.items.pop() if self.items else None
s = Stack[int]()
s.push(1)
print(s.pop(), s.pop(), UserId(5), cast(int, 'a'), TYPE_CHECKING)
class Employee(NamedTuple):
    name: str
    id: int = 3
    def label(self):
        return f'{self.name}#{self.id}'
e = Employee('Ann')
print(e, e.label(), e._replace(id=4), e == ('Ann', 3), Employee._fields, e[0], len(e))
class Movie(TypedDict):
    name: str
    year: int
print(Movie(name='x', year=1), isinstance([], List), isinstance(print, Callable), isinstance({}, Dict))
@runtime_checkable
class Drawable(Protocol):
    def draw(self): ...
class Circle:
    def draw(self):
        return 'o'
print(isinstance(Circle(), Drawable), isinstance(3, Drawable))
def f(x: Union[int, str], g: Callable[[int], int], *a: Any) -> Tuple[int, ...]:
    return x, g(1)
print(f(1, lambda v: v + 1))
### itertools
import itertools as it
print(list(it.starmap(pow, [(2, 3), (3, 2)])), list(it.takewhile(lambda x: x < 3, it.count(1))), list(it.dropwhile(lambda x: x < 3, [1, 3, 1])))
print(list(it.compress('abc', [1, 0, 1])), list(it.filterfalse(lambda x: x % 2, range(5))), list(it.zip_longest('ab', [1], fillvalue='-')), list(it.pairwise('abc')))
print([list(x) for x in it.tee(it.islice(it.count(), 3), 2)], list(it.islice(it.cycle('ab'), 5)), list(it.repeat(1, 2)), list(it.chain.from_iterable([[1], [2]])))
a, b = it.tee(it.count())
print(next(a), next(a), next(b), list(it.islice('abcdef', 1, None, 2)), list(it.accumulate([1, 2, 3], func=lambda a, b: a * b, initial=2)))
print(list(it.combinations_with_replacement('ab', 2)), list(it.combinations('abc', r=2)), len(list(it.product('ab', repeat=3))))
### json
import json
from collections import OrderedDict, namedtuple
class P:
    def __init__(self, x):
        self.x = x
print(json.dumps({'p': P(1)}, default=lambda o: {'x': o.x}), json.dumps({'b': 1, 'a': [True, None, 'é"']}, sort_keys=True, indent=4))
print(json.dumps([1, 2], separators=(',', ':')), json.dumps('é', ensure_ascii=False), json.loads('[1.5, "\\u00e9", {"a": null}]'), json.dumps({1: 2, None: 3, 2.5: 4}))
print(json.loads('{"a": 1.5}', parse_float=str), json.loads('{"a": {"b": 1}}', object_hook=lambda d: sorted(d)), json.dumps(namedtuple('Q', 'a b')(1, 2)), json.dumps({(1, 2): 3}, skipkeys=True))
for bad in ('{', '[1,]', 'nope'):
    try:
        json.loads(bad)
    except json.JSONDecodeError as e:
        print(type(e).__name__, e)
try:
    json.dumps({1, 2})
except TypeError as e:
    print(e)
loop = []
loop.append(loop)
try:
    json.dumps(loop)
except ValueError as e:
    print(e)
### named tuples
from collections import namedtuple
Point = namedtuple('Point', ['x', 'y'])
p, q = Point(1, 2), Point(x=3, y=4)
x, y = p
print(p, p.x, p[1], p[-1], x, y, p + (5,), p == (1, 2), p < q, len(p), list(p), p._asdict(), p._replace(y=9), Point._fields, Point._make([7, 8]))
print(hash(p) == hash((1, 2)), {p: 'a'}[(1, 2)], {(1, 2): 'b'}[p], p in [(1, 2)], 2 in p, p.count(1), p.index(2), p[0:1], p * 2, sorted([q, p]), max(p), sum(p))
print(isinstance(p, tuple), isinstance(p, Point), '%s-%s' % p, f'{p}', [*p], (0, *p), type(p).__name__, Point, (1, 2) == p, (0, 9) < p, (1,) + p, bool(p))
Card = namedtuple('Card', 'rank suit', defaults=['spades'])
print(Card('A'), Card('K', suit='hearts'), max([Card('2'), Card('7')], key=lambda c: c.rank))
class Vec(namedtuple('Vec', 'x y')):
    def __add__(self, o):
        return Vec(self.x + o.x, self.y + o.y)
    @property
    def norm(self):
        return (self.x ** 2 + self.y ** 2) ** 0.5
v = Vec(3, 4) + Vec(0, 0)
print(v, v.norm, v._replace(x=1), isinstance(v, tuple), [v.x for v in sorted([Vec(2, 1), Vec(1, 5)])])
for call in (lambda: Point(1), lambda: Point(1, 2, 3), lambda: Point(1, z=3), lambda: p._replace(z=1), lambda: Point._make([1]),
             lambda: namedtuple('A', 'x x'), lambda: namedtuple('A', 'class'), lambda: namedtuple('A', '_x'), lambda: namedtuple('1', 'x')):
    try:
        call()
    except (TypeError, ValueError) as e:
        print(type(e).__name__, e)
try:
    p.x = 5
except AttributeError as e:
    print('AttributeError')
try:
    p.nope
except AttributeError as e:
    print(e)
print(namedtuple('R', 'a def a', rename=True)._fields, {Point(0, 0): 1}, {Point(0, 0), Point(0, 0)} == {(0, 0)}, [tuple(p), dict(zip(p._fields, p))])
import copy
print(copy.copy(p) == p, copy.deepcopy(Point([1], 2)), any(Point(0, 0)), all(p), list(map(lambda t: t.x, [p, q])), list(zip(*[p, q])), list(enumerate(p)))
### numbers
from numbers import Number, Integral, Real, Rational, Complex
from fractions import Fraction
from decimal import Decimal
for kind in (Number, Complex, Real, Rational, Integral):
    print([isinstance(v, kind) for v in (1, True, 1.5, 1j, Fraction(1, 2), Decimal(1), 'a', None)])
import math
print(math.gcd(12, 18, 27), math.lcm(4, 6), math.perm(5), math.comb(5, 2), math.isqrt(17), math.prod([1.5, 2]), math.dist((0, 0), (3, 4)), math.hypot(3, 4), math.fsum([0.1] * 10))
print(math.modf(2.5), math.frexp(8), math.copysign(1, -0.0), math.log(8, 2), math.log2(8), math.cbrt(27), math.nextafter(1, 2), math.degrees(math.pi), math.trunc(-1.5), math.isclose(0.1 + 0.2, 0.3))
### operators
import operator as op
class P:
    def __init__(self, n, a):
        self.name, self.age = n, a
ps = [P('b', 2), P('a', 3)]
print([p.name for p in sorted(ps, key=op.attrgetter('name'))], op.attrgetter('name', 'age')(ps[0]), op.methodcaller('upper')('x'), op.methodcaller('split', ',')('a,b'))
print(op.itemgetter(1)([1, 2]), op.itemgetter(0, 2)('abc'), op.add(1, 2), op.mul('a', 3), op.neg(3), op.not_([]), op.contains([1], 1), op.concat([1], [2]), op.countOf([1, 1], 1), op.indexOf('abc', 'c'))
xs = [1, 2]
op.setitem(xs, 0, 9)
print(xs, op.iadd(xs, [3]), op.truediv(1, 2), op.lt(1, 2), op.xor(5, 1), op.index(True), op.getitem(xs, 1))
### random without values
import random
random.seed(1)
x = [random.gauss(0, 1) for _ in range(3)], random.random(), random.uniform(1, 2), random.randrange(0, 10, 3), random.expovariate(1.5), random.triangular(0, 1, 0.5)
y = random.betavariate(1, 2), random.gammavariate(2, 1), random.gammavariate(0.5, 1), random.normalvariate(0, 1), random.vonmisesvariate(0, 4), random.weibullvariate(1, 2), random.paretovariate(3)
r = random.Random('seed')
print(x, y, r.random(), r.choices('abc', weights=[1, 2, 3], k=4), r.sample('abcdef', 3), r.sample([1, 2], counts=[3, 1], k=2), r.randbytes(3), r.getrandbits(70), r.choice((1, 2, 3)))
xs = list(range(10))
r.shuffle(xs)
print(xs, r.randint(1, 6), r.lognormvariate(0, 1))
### statistics
import statistics as s
from fractions import Fraction
xs = [2, 4, 4, 4, 5, 5, 7, 9]
print(s.mean(xs), s.pstdev(xs), s.median_low(xs), s.median_high(xs), s.multimode('aabb'), s.quantiles(xs, n=4), s.variance(xs), s.pvariance(xs), s.harmonic_mean([1, 2]), s.geometric_mean([1, 4]))
print(s.fmean([1.5, 2.5]), s.median_grouped([1, 2, 2, 3]), s.mean([Fraction(1, 2), 1]), s.correlation([1, 2, 3], [1, 2, 4]), s.covariance([1, 2], [3, 5]), s.linear_regression([1, 2, 3], [2, 4, 6]))
print(s.stdev([1, 2, 3], xbar=2), s.quantiles([1, 2, 3], method='inclusive'), s.linear_regression([1, 2], [3, 5]).slope)
try:
    s.mean([])
except s.StatisticsError as e:
    print(e)
### templates
import string
from string import Template
t = Template('Dear $name, you owe ${amount}$$ to $creditor_1.')
print(t.substitute(name='Ann', amount=5, creditor_1='Bob'), t.safe_substitute({'name': 'X'}), t.get_identifiers() if hasattr(t, 'get_identifiers') else '', t.template)
for bad in ('$', '$1', '${a', '$a'):
    try:
        print(Template(bad).substitute(), Template(bad).safe_substitute())
    except (KeyError, ValueError) as e:
        print(type(e).__name__)
    print(Template(bad).safe_substitute())
class Percent(Template):
    delimiter = '%'
    idpattern = '[a-z]+'
print(Percent('%Ab %c %%').safe_substitute(c=1, Ab=2))
print(string.ascii_letters, string.digits, string.punctuation, repr(string.whitespace), string.hexdigits, string.capwords('hello  world'))
from collections import defaultdict
print(Template('$x $y').substitute(defaultdict(int, x=1), y=3))
### text wrapping
import textwrap
text = 'The quick brown fox jumped over the lazy-dog, and then some more--of the same story: end.'
print(textwrap.fill(text, 20), textwrap.wrap(text, width=30, initial_indent='* ', subsequent_indent='  '))
print(textwrap.dedent('''
    a
      b

    c
'''), textwrap.indent('a\n\nb\n', '> '), textwrap.shorten(text, 25), textwrap.shorten('Hello world', width=10, placeholder='...'))
print(textwrap.wrap('a' * 25, 10), textwrap.wrap('x y', 1), textwrap.wrap(''), textwrap.indent('a\n\nb', '-', lambda line: True), textwrap.wrap('one two three', 8, max_lines=2))
### union types
def f(x):
    return isinstance(x, int | str | None)
print(f(1), f('a'), f(None), f(1.5), isinstance([], list | tuple), isinstance(1, (int | float, str)))
"""
EVERYDAY = {
    block.partition("\n")[0]: block.partition("\n")[2] for block in EVERYDAY_SOURCE.split("### ") if block.strip()
}


@pytest.fixture(scope="module")
def pool() -> Iterator[InterpreterPool]:
    with InterpreterPool(workers=1) as pool:
        yield pool


def by_python(code: str) -> str:
    """What Python prints."""
    expected = io.StringIO()
    with contextlib.redirect_stdout(expected), decimal.localcontext(decimal.Context()):
        exec(compile(code, "<program>", "exec", dont_inherit=True), {"__name__": "__main__"})
    return expected.getvalue()


@pytest.mark.parametrize("name", EVERYDAY)
def test_everyday_program_prints_what_python_prints(pool: InterpreterPool, name: str) -> None:
    result = pool.run(EVERYDAY[name])
    assert result.ok, result
    assert result.output == by_python(EVERYDAY[name])


# name: (program, what it must end as). "limit" is any limit but time and crash, which are backstops.
HOSTILE: dict[str, tuple[str, str]] = {
    # ---- decimal
    "precision": (
        "from decimal import Context, Decimal, DivisionByZero, InvalidOperation, getcontext, localcontext\ngetcontext().prec = 10 ** 9",
        "limit memory",
    ),
    "precision at once": (
        "from decimal import Context, Decimal, DivisionByZero, InvalidOperation, getcontext, localcontext\nContext(prec=10 ** 18)",
        "limit memory",
    ),
    "precision in a block": (
        "from decimal import Context, Decimal, DivisionByZero, InvalidOperation, getcontext, localcontext\nwith localcontext(prec=10 ** 12):\n    pass",
        "limit memory",
    ),
    "huge power": (
        "from decimal import Context, Decimal, DivisionByZero, InvalidOperation, getcontext, localcontext\nprint(Decimal(10) ** (10 ** 9))",
        "error Overflow",
    ),
    "power of a power": (
        "from decimal import Context, Decimal, DivisionByZero, InvalidOperation, getcontext, localcontext\nprint(Decimal('1.0000001') ** (10 ** 30))",
        "error Overflow",
    ),
    "power with a long exponent": (
        "from decimal import Context, Decimal, DivisionByZero, InvalidOperation, getcontext, localcontext\ne = Decimal('9' * 70000)\nprint(Decimal('1.' + '0' * 70000 + '1') ** e)",
        "limit steps",
    ),
    "modular power": (
        "from decimal import Context, Decimal, DivisionByZero, InvalidOperation, getcontext, localcontext\nc = Context(prec=50000)\nx = Decimal('7' * 40000)\nprint(c.power(x, x, x + 1))",
        "limit",
    ),
    "modular power of a huge number": (
        "from decimal import Decimal\nwhile True:\n    pow(Decimal('1e60000'), 60000, 7)",
        "limit steps",
    ),
    "modular power of too much": ("from decimal import Decimal\npow(Decimal('1e99999999'), 5, 7)", "limit memory"),
    "integer of a big number": (
        "from decimal import Context, Decimal, DivisionByZero, InvalidOperation, getcontext, localcontext\nint(Decimal('1e1000000'))",
        "limit memory",
    ),
    "integer of a huge number": (
        "from decimal import Context, Decimal, DivisionByZero, InvalidOperation, getcontext, localcontext\nint(Decimal('1e999999999'))",
        "limit memory",
    ),
    "floor": (
        "from decimal import Context, Decimal, DivisionByZero, InvalidOperation, getcontext, localcontext\nimport math\nmath.floor(Decimal('1e999999999'))",
        "limit memory",
    ),
    "ceil": (
        "from decimal import Context, Decimal, DivisionByZero, InvalidOperation, getcontext, localcontext\nimport math\nmath.ceil(Decimal('-1e999999999'))",
        "limit memory",
    ),
    "round": (
        "from decimal import Context, Decimal, DivisionByZero, InvalidOperation, getcontext, localcontext\nround(Decimal('1e999999999'))",
        "limit memory",
    ),
    "trunc": (
        "from decimal import Context, Decimal, DivisionByZero, InvalidOperation, getcontext, localcontext\nimport math\nmath.trunc(Decimal('1e999999999'))",
        "limit memory",
    ),
    "ratio": (
        "from decimal import Context, Decimal, DivisionByZero, InvalidOperation, getcontext, localcontext\nDecimal('1e-999999999').as_integer_ratio()",
        "limit memory",
    ),
    "as a fraction": (
        "from decimal import Context, Decimal, DivisionByZero, InvalidOperation, getcontext, localcontext\nfrom fractions import Fraction\nFraction(Decimal('1e999999999'))",
        "limit memory",
    ),
    "averaged": (
        "from decimal import Context, Decimal, DivisionByZero, InvalidOperation, getcontext, localcontext\nimport statistics\nstatistics.mean([Decimal('1e999999'), 1])",
        "limit memory",
    ),
    "percent d": (
        "from decimal import Context, Decimal, DivisionByZero, InvalidOperation, getcontext, localcontext\n'%d' % Decimal('1e999999999')",
        "limit memory",
    ),
    "fixed format": (
        "from decimal import Context, Decimal, DivisionByZero, InvalidOperation, getcontext, localcontext\nf'{Decimal(\"1e999999999\"):f}'",
        "limit memory",
    ),
    "small fixed format": (
        "from decimal import Context, Decimal, DivisionByZero, InvalidOperation, getcontext, localcontext\nf'{Decimal(\"1e-999999999\"):f}'",
        "limit memory",
    ),
    "format width": (
        "from decimal import Context, Decimal, DivisionByZero, InvalidOperation, getcontext, localcontext\nf'{Decimal(1):999999999}'",
        "limit memory",
    ),
    "format precision": (
        "from decimal import Context, Decimal, DivisionByZero, InvalidOperation, getcontext, localcontext\nf'{Decimal(1):.999999999f}'",
        "limit memory",
    ),
    "format of a format": (
        "from decimal import Context, Decimal, DivisionByZero, InvalidOperation, getcontext, localcontext\nw = 10 ** 9\nf'{Decimal(1):{w}}'",
        "limit memory",
    ),
    "digits": (
        "from decimal import Context, Decimal, DivisionByZero, InvalidOperation, getcontext, localcontext\nDecimal('1' * 10 ** 6)",
        "limit memory",
    ),
    "digits in a tuple": (
        "from decimal import Context, Decimal, DivisionByZero, InvalidOperation, getcontext, localcontext\nDecimal((0, (1,) * 10 ** 6, 0))",
        "limit memory",
    ),
    "tuple of odd things": (
        "from decimal import Context, Decimal, DivisionByZero, InvalidOperation, getcontext, localcontext\nclass K:\n    def __index__(self):\n        while True: pass\nDecimal((K(), (K(),), K()))",
        "error ValueError",
    ),
    "logarithm at high precision": (
        "from decimal import Context, Decimal, DivisionByZero, InvalidOperation, getcontext, localcontext\ngetcontext().prec = 70000\nDecimal(3).ln()",
        "limit steps",
    ),
    "exponential at high precision": (
        "from decimal import Context, Decimal, DivisionByZero, InvalidOperation, getcontext, localcontext\ngetcontext().prec = 70000\nDecimal(3).exp()",
        "limit steps",
    ),
    "root at high precision": (
        "from decimal import Context, Decimal, DivisionByZero, InvalidOperation, getcontext, localcontext\ngetcontext().prec = 70000\nDecimal(3).sqrt()",
        "limit steps",
    ),
    "logarithm of many digits": (
        "from decimal import Context, Decimal, DivisionByZero, InvalidOperation, getcontext, localcontext\nDecimal('3' * 70000).log10()",
        "limit steps",
    ),
    "products": (
        "from decimal import Context, Decimal, DivisionByZero, InvalidOperation, getcontext, localcontext\ngetcontext().prec = 70000\nx = Decimal(1) / 3\nwhile True:\n    x * x",
        "limit steps",
    ),
    "quotients": (
        "from decimal import Context, Decimal, DivisionByZero, InvalidOperation, getcontext, localcontext\ngetcontext().prec = 70000\nx = Decimal('3' * 70000)\nwhile True:\n    1 / x\n    x % 7",
        "limit steps",
    ),
    "sums": (
        "from decimal import Context, Decimal, DivisionByZero, InvalidOperation, getcontext, localcontext\ngetcontext().prec = 70000\nx = Decimal('1e-60000')\nwhile True:\n    x + 1",
        "limit steps",
    ),
    "comparisons": (
        "from decimal import Context, Decimal, DivisionByZero, InvalidOperation, getcontext, localcontext\nx, y = Decimal('3' * 70000), 3 ** 100000\nwhile True:\n    x < y\n    x == y\n    y > x",
        "limit steps",
    ),
    "comparison with a fraction": (
        "from decimal import Context, Decimal, DivisionByZero, InvalidOperation, getcontext, localcontext\nfrom fractions import Fraction\nx, y = Decimal('1e999999999'), Fraction(3 ** 100000, 7 ** 80000)\n"
        "while True:\n    x < y\n    y == x",
        "limit steps",
    ),
    "comparison of exponents": (
        "from decimal import Context, Decimal, DivisionByZero, InvalidOperation, getcontext, localcontext\nx, y = Decimal('1e999999999'), Decimal('1e-999999999')\nwhile True:\n    x > y\n    x == 1",
        "limit steps",
    ),
    "hashes": (
        "from decimal import Context, Decimal, DivisionByZero, InvalidOperation, getcontext, localcontext\nx = Decimal('3' * 70000 + 'e999999999')\nwhile True:\n    hash(x)",
        "limit steps",
    ),
    "colliding keys": (
        "from decimal import Context, Decimal, DivisionByZero, InvalidOperation, getcontext, localcontext\nd = {}\ni = 0\nwhile True:\n    d[Decimal(i * (2 ** 61 - 1))] = 1\n    i += 1",
        "limit steps",
    ),
    "numbers of integers": (
        "from decimal import Context, Decimal, DivisionByZero, InvalidOperation, getcontext, localcontext\nx = 3 ** 160000\nwhile True:\n    Decimal(x)",
        "limit steps",
    ),
    "digits taken": (
        "from decimal import Context, Decimal, DivisionByZero, InvalidOperation, getcontext, localcontext\nx = Decimal('3' * 70000)\nwhile True:\n    x.as_tuple()",
        "limit steps",
    ),
    "texts": (
        "from decimal import Context, Decimal, DivisionByZero, InvalidOperation, getcontext, localcontext\nx = Decimal('3' * 70000)\nwhile True:\n    str(x)\n    repr(x)",
        "limit steps",
    ),
    "logical": (
        "from decimal import Context, Decimal, DivisionByZero, InvalidOperation, getcontext, localcontext\ngetcontext().prec = 70000\nx = Decimal('1' * 70000)\nwhile True:\n    x.logical_xor(x)\n"
        "    x.rotate(5)\n    x.shift(-3)\n    x.next_plus()",
        "limit steps",
    ),
    "sorted": (
        "from decimal import Context, Decimal, DivisionByZero, InvalidOperation, getcontext, localcontext\nxs = [Decimal('3' * 70000 + str(i)) for i in range(50)]\nwhile True:\n    sorted(xs)\n    max(xs)",
        "limit steps",
    ),
    "native number": (
        "from decimal import Context, Decimal, DivisionByZero, InvalidOperation, getcontext, localcontext\nprint('REACHED', Decimal(1)._native)",
        "refused PolicyError",
    ),
    "native number by name": (
        "from decimal import Context, Decimal, DivisionByZero, InvalidOperation, getcontext, localcontext\nprint('REACHED', getattr(Decimal(1), '_nat' + 'ive'))",
        "refused",
    ),
    "change of the class": (
        "from decimal import Context, Decimal, DivisionByZero, InvalidOperation, getcontext, localcontext\nDecimal.sqrt = lambda self: 5",
        "refused PolicyError",
    ),
    "change of a number": (
        "from decimal import Context, Decimal, DivisionByZero, InvalidOperation, getcontext, localcontext\nDecimal(1).x = 5",
        "error AttributeError",
    ),
    "signals of a program": (
        "from decimal import Context, Decimal, DivisionByZero, InvalidOperation, getcontext, localcontext\ntype(getcontext().flags)(iter(range(10 ** 12)))",
        "error TypeError",
    ),
    "method misused": (
        "from decimal import Context, Decimal, DivisionByZero, InvalidOperation, getcontext, localcontext\nDecimal.sqrt(5)",
        "error TypeError",
    ),
    "traps off": (
        "from decimal import Context, Decimal, DivisionByZero, InvalidOperation, getcontext, localcontext\ngetcontext().traps[InvalidOperation] = False\ngetcontext().traps[DivisionByZero] = False\n"
        "print(Decimal('x'), Decimal(1) / 0, getcontext().flags[DivisionByZero])",
        "ok",
    ),
    "comparison of odd things": (
        "from decimal import Context, Decimal, DivisionByZero, InvalidOperation, getcontext, localcontext\nclass K:\n    def __eq__(self, o):\n        while True: pass\n"
        "Decimal(1) == K()",
        "limit steps",
    ),
    # ---- named tuples
    "many fields": (
        "from collections import namedtuple\nnamedtuple('A', ['x%d' % i for i in range(10 ** 6)])",
        "limit",
    ),
    "too many fields": (
        "from collections import namedtuple\nnamedtuple('A', ['x%d' % i for i in range(2000)])",
        "limit memory",
    ),
    "many classes": (
        "from collections import namedtuple\nwhile True:\n    namedtuple('A', 'x y')",
        "limit steps",
    ),
    "endless names": (
        "from collections import namedtuple\nimport itertools\nnamedtuple('A', itertools.repeat('x'))",
        "limit",
    ),
    "names that never end": (
        "from collections import namedtuple\nclass S:\n    def __str__(self):\n        while True: pass\nnamedtuple('A', [S()])",
        "limit steps",
    ),
    "private field": ("from collections import namedtuple\nnamedtuple('A', '__class__')", "error ValueError"),
    "code for a name": (
        "from collections import namedtuple\nnamedtuple('A', ['x=1):\\n print(9)#'])",
        "error ValueError",
    ),
    "code for the class": ("from collections import namedtuple\nnamedtuple('A(object)', 'x')", "error ValueError"),
    "record repeated": (
        "from collections import namedtuple\np = namedtuple('A', 'x')(1)\nprint(len(p * 10 ** 9))",
        "limit memory",
    ),
    "record repeated from the left": (
        "from collections import namedtuple\np = namedtuple('A', 'x')(1)\nprint(len(10 ** 9 * p))",
        "limit memory",
    ),
    "record added": (
        "from collections import namedtuple\np = namedtuple('A', 'x')(1)\nt = (1,) * 900000\nwhile True:\n    t + p",
        "limit steps",
    ),
    "nested records hashed": (
        "from collections import namedtuple\nP = namedtuple('P', 'x y')\np = P(1, 1)\nfor i in range(60):\n    p = P(p, p)\n"
        "print(hash(p))",
        "limit",
    ),
    "nested records as a key": (
        "from collections import namedtuple\nP = namedtuple('P', 'x y')\np = P(1, 1)\nfor i in range(60):\n    p = P(p, p)\n"
        "print({p: 1})",
        "limit",
    ),
    "nested records compared": (
        "from collections import namedtuple\nP = namedtuple('P', 'x y')\np, q = P(1, 1), P(1, 1)\nfor i in range(60):\n"
        "    p, q = P(p, p), P(q, q)\nprint(p == q)",
        "limit",
    ),
    "nested records printed": (
        "from collections import namedtuple\nP = namedtuple('P', 'x y')\np = P(1, 1)\nfor i in range(60):\n    p = P(p, p)\nprint(p)",
        "limit",
    ),
    "deep records": (
        "from collections import namedtuple\nP = namedtuple('P', 'x')\np = P(1)\nfor i in range(100000):\n    p = P(p)\nprint(p)",
        "limit",
    ),
    "deep records hashed": (
        "from collections import namedtuple\nP = namedtuple('P', 'x')\np = P(1)\nfor i in range(100000):\n    p = P(p)\nhash(p)",
        "limit",
    ),
    "deep records compared": (
        "from collections import namedtuple\nP = namedtuple('P', 'x')\np = q = P(1)\nfor i in range(50000):\n    p = P(p)\n"
        "for i in range(50000):\n    q = P(q)\nprint(p == q)",
        "limit",
    ),
    "record in itself": (
        "from collections import namedtuple\nP = namedtuple('P', 'x')\nxs = []\np = P(xs)\nxs.append(p)\nprint(p)\nprint(p == p)\nhash(p)",
        "error TypeError",
    ),
    "colliding records": (
        "from collections import namedtuple\nP = namedtuple('P', 'x')\nd = {}\ni = 0\nwhile True:\n    d[P(i * (2 ** 61 - 1))] = i\n    i += 1",
        "limit steps",
    ),
    "records by index": (
        "from collections import namedtuple\np = namedtuple('A', 'x')(1)\np[10 ** 30]",
        "error IndexError",
    ),
    "signature of a record": (
        "from collections import namedtuple\nprint('REACHED', namedtuple('A', 'x')._signature_)",
        "refused",
    ),
    "change of a façade's record": ("import functools\ntype(functools.cache(print).cache_info()).hits = 5", "refused"),
    # ---- dataclasses
    "factory that hangs": (
        "from dataclasses import asdict, dataclass, field, fields\ndef f():\n    while True: pass\n@dataclass\nclass A:\n    x: int = field(default_factory=f)\nA()",
        "limit steps",
    ),
    "equal for ever": (
        "from dataclasses import asdict, dataclass, field, fields\n@dataclass\nclass A:\n    x: object = None\na, b = A(), A()\na.x, b.x = b, a\nprint(a == b)",
        "limit",
    ),
    "ordered for ever": (
        "from dataclasses import asdict, dataclass, field, fields\n@dataclass(order=True)\nclass A:\n    x: object = None\na, b = A(), A()\na.x, b.x = b, a\nprint(a < b)",
        "limit",
    ),
    "hashed for ever": (
        "from dataclasses import asdict, dataclass, field, fields\n@dataclass(unsafe_hash=True)\nclass A:\n    x: object = None\na = A()\na.x = a\nprint(hash(a))",
        "limit",
    ),
    "keyed for ever": (
        "from dataclasses import asdict, dataclass, field, fields\n@dataclass(unsafe_hash=True)\nclass A:\n    x: object = None\na = A()\na.x = (a,)\nprint({a: 1})",
        "limit",
    ),
    "doubled": (
        "from dataclasses import asdict, dataclass, field, fields\n@dataclass\nclass A:\n    x: object\n    y: object\na = A(1, 1)\nfor i in range(60):\n    a = A(a, a)\n"
        "print(a)",
        "limit",
    ),
    "doubled as a dictionary": (
        "from dataclasses import asdict, dataclass, field, fields\n@dataclass\nclass A:\n    x: object\n    y: object\na = A(1, 1)\nfor i in range(60):\n    a = A(a, a)\n"
        "asdict(a)",
        "limit",
    ),
    "doubled compared": (
        "from dataclasses import asdict, dataclass, field, fields\n@dataclass\nclass A:\n    x: object\n    y: object\na, b = A(1, 1), A(1, 1)\nfor i in range(60):\n"
        "    a, b = A(a, a), A(b, b)\nprint(a == b)",
        "limit",
    ),
    "dictionary of itself": (
        "from dataclasses import asdict, dataclass, field, fields\n@dataclass\nclass A:\n    x: object = None\na = A()\na.x = a\nasdict(a)",
        "limit recursion",
    ),
    "factory of dictionaries": (
        "from dataclasses import asdict, dataclass, field, fields\n@dataclass\nclass A:\n    x: int = 1\ndef f(pairs):\n    while True: pass\nasdict(A(), dict_factory=f)",
        "limit steps",
    ),
    "after the constructor": (
        "from dataclasses import asdict, dataclass, field, fields\n@dataclass\nclass A:\n    x: int = 1\n    def __post_init__(self):\n        A()\nA()",
        "limit",
    ),
    "dataclass of a façade": (
        "from dataclasses import asdict, dataclass, field, fields\nimport string\ndataclass(string.Template)",
        "error TypeError",
    ),
    "dataclass of a number": (
        "from dataclasses import asdict, dataclass, field, fields\nfrom decimal import Decimal\ndataclass(Decimal)",
        "error TypeError",
    ),
    "dataclass of a type": (
        "from dataclasses import asdict, dataclass, field, fields\ndataclass(int)",
        "error TypeError",
    ),
    "dataclass of an instance": (
        "from dataclasses import asdict, dataclass, field, fields\ndataclass(5)",
        "error TypeError",
    ),
    "many dataclasses": (
        "from dataclasses import asdict, dataclass, field, fields\nwhile True:\n    @dataclass\n    class A:\n        x: int = 1",
        "limit steps",
    ),
    "shape of a dataclass": (
        "from dataclasses import asdict, dataclass, field, fields\n@dataclass\nclass A:\n    x: int\nprint('REACHED', A._shape_)",
        "refused",
    ),
    "fields of a dataclass": (
        "from dataclasses import asdict, dataclass, field, fields\n@dataclass\nclass A:\n    x: int\nprint('REACHED', A.__dataclass_fields__)",
        "refused",
    ),
    "field written": (
        "from dataclasses import asdict, dataclass, field, fields\n@dataclass\nclass A:\n    x: int\nfields(A)[0].name = 'y'",
        "refused",
    ),
    "property in the way": (
        "from dataclasses import asdict, dataclass, field, fields\n@dataclass\nclass A:\n    x: int\n    @property\n    def x(self):\n        return self.x\n"
        "print(A(1).x)",
        "error",
    ),
    "frozen all the way": (
        "from dataclasses import asdict, dataclass, field, fields\n@dataclass(frozen=True)\nclass A:\n    x: int\na = A(1)\nobject.__setattr__(a, 'x', 2)",
        "refused",
    ),
    # ---- enumerations
    "enumeration without end": (
        "from enum import Enum, IntEnum\nwhile True:\n    class A(Enum):\n        X = 1\n        Y = 2",
        "limit steps",
    ),
    "constructor of members": (
        "from enum import Enum, IntEnum\nclass A(Enum):\n    X = 1\n    def __init__(self, v):\n        while True: pass",
        "limit steps",
    ),
    "member as a number": (
        "from enum import Enum, IntEnum\nclass A(IntEnum):\n    X = 60000\nprint(2 ** (A.X ** A.X))",
        "limit memory",
    ),
    "big member": ("from enum import Enum, IntEnum\nclass A(IntEnum):\n    X = 10 ** 9", "refused"),
    "repeated by a member": (
        "from enum import Enum, IntEnum\nclass A(IntEnum):\n    X = 60000\nprint(len('ab' * 10000 * A.X))",
        "limit",
    ),
    "shifted by a member": (
        "from enum import Enum, IntEnum\nclass A(IntEnum):\n    X = 60000\nx = 1\nwhile True:\n    x = x << A.X",
        "limit memory",
    ),
    "factorial of a member": (
        "from enum import Enum, IntEnum\nimport math\nclass A(IntEnum):\n    X = 60000\nwhile True:\n    math.factorial(A.X)",
        "limit",
    ),
    "power of a member": (
        "from enum import Enum, IntEnum\nclass A(IntEnum):\n    X = 60000\nm = 3 ** 100000\nwhile True:\n    pow(m - 1, A.X, m)",
        "limit",
    ),
    "rounded by a member": (
        "from enum import Enum, IntEnum\nclass A(IntEnum):\n    X = -60000\nm = 3 ** 150000\nwhile True:\n    round(m, A.X)",
        "limit",
    ),
    "value that is equal to all": (
        "from enum import Enum, IntEnum\nclass K:\n    def __eq__(self, o):\n        while True: pass\n    def __hash__(self):\n        return 1\n"
        "class A(Enum):\n    X = 1\nA(K())",
        "limit steps",
    ),
    "colliding values": (
        "from enum import Enum, IntEnum\nEnum('A', [('x%d' % i, i * (2 ** 61 - 1)) for i in range(20000)])",
        "limit",
    ),
    "extended": (
        "from enum import Enum, IntEnum\nclass A(Enum):\n    X = 1\nclass B(A):\n    Y = 2",
        "error TypeError",
    ),
    "mixed": ("from enum import Enum, IntEnum\nclass A(Exception, Enum):\n    X = 1", "refused"),
    "mixed with numbers": (
        "from enum import Enum, IntEnum\nfrom decimal import Decimal\nclass A(Decimal, Enum):\n    X = 1",
        "refused",
    ),
    "base changed": ("from enum import Enum, IntEnum\nEnum.name = 5", "refused"),
    "members of the base": ("from enum import Enum, IntEnum\nEnum._members_ = 5", "refused"),
    # ---- abstract classes
    "subclass hook": (
        "from collections.abc import Iterable\nclass A(Iterable):\n    def __subclasshook__(cls, o):\n        return True",
        "refused",
    ),
    "instance hook": ("class A:\n    def __instancecheck__(cls, o):\n        return True\nisinstance(1, A)", "refused"),
    "registered": ("from collections.abc import Iterable\nIterable.register(int)", "error AttributeError"),
    "abstract made": ("from collections.abc import Set\nclass A(Set):\n    pass", "refused"),
    "metaclass of another name": ("class ABCMeta: pass\nclass M: pass\nclass A(metaclass=M): pass", "refused"),
    "abstract changed": ("import abc\nabc.ABC.x = 5", "refused"),
    "endless sequence": (
        "from collections.abc import Sequence\nclass A(Sequence):\n    def __len__(self):\n        return 10 ** 12\n"
        "    def __getitem__(self, i):\n        return i\nprint(-1 in A())",
        "limit steps",
    ),
    "endless sequence reversed": (
        "from collections.abc import Sequence\nclass A(Sequence):\n    def __len__(self):\n        return 10 ** 12\n"
        "    def __getitem__(self, i):\n        return i\nlist(reversed(A()))",
        "limit",
    ),
    "cleared for ever": (
        "from collections.abc import MutableMapping\nclass A(MutableMapping):\n    def __len__(self):\n        return 1\n"
        "    def __iter__(self):\n        return iter([1])\n    def __getitem__(self, k):\n        return 1\n"
        "    def __setitem__(self, k, v):\n        pass\n    def __delitem__(self, k):\n        pass\nA().clear()",
        "limit steps",
    ),
    "method of a mapping on a dictionary": (
        "from collections.abc import Mapping\nMapping.get({}, 1)",
        "error TypeError",
    ),
    "keys of numbers and records": (
        "from decimal import Decimal\nfrom collections import namedtuple\nP = namedtuple('P', 'x')\nd = {}\n"
        "for i in range(300):\n    d[(Decimal('0.5'), 2 ** 70)] = d[(P(1), 2 ** 70)] = i",
        "ok",
    ),
    "many checks": (
        "from collections.abc import Sequence\nwhile True:\n    class A:\n        pass\n    isinstance(A(), Sequence)",
        "limit steps",
    ),
    # ---- templates and text
    "hostile mapping": (
        "from string import Template\nclass M:\n    def __getitem__(self, k):\n        while True: pass\nTemplate('$a').substitute(M())",
        "limit steps",
    ),
    "value that never ends": (
        "from string import Template\nclass S:\n    def __str__(self):\n        while True: pass\nTemplate('$a').substitute(a=S())",
        "limit steps",
    ),
    "big values": (
        "from string import Template\nTemplate('$a' * 5000).substitute(a='x' * 1000000)",
        "limit",
    ),
    "big mapping": (
        "from string import Template\nm = {str(i): i for i in range(50000)}\nm['a'] = 1\nt = Template('$a ' * 3000)\nwhile True:\n"
        "    t.substitute(m)",
        "limit steps",
    ),
    "template changed": ("import string\nstring.Template.delimiter = '#'", "refused"),
    "template's method changed": ("import string\nstring.Template.substitute = lambda *a: 5", "refused"),
    "template in a class": (
        "import string\nclass T(string.Template):\n    idpattern = '(a+)+z'\nprint(T('$' + 'a' * 40).is_valid())",
        "limit steps",
    ),
    "template without a delimiter": (
        "import string\nclass T(string.Template):\n    delimiter = ''\nprint(T('abc').safe_substitute())",
        "error ValueError",
    ),
    "formatter": ("import string\nstring.Formatter()", "refused"),
    "indent": ("import textwrap\ntextwrap.indent('a\\n' * 100000, 'x' * 10000)", "limit memory"),
    "indent of lines": ("import textwrap\ntextwrap.wrap('a ' * 1000, 5, initial_indent='x' * 10 ** 7)", "refused"),
    "tabs": ("import textwrap\ntextwrap.wrap('\\t' * 10000, 5, tabsize=10 ** 9)", "limit memory"),
    "words": ("import textwrap\ntextwrap.fill('a' * 10 ** 6, 1)", "limit steps"),
    "hyphens": ("import textwrap\ntextwrap.fill('a-' * 10 ** 5, 10)", "limit steps"),
    "hostile width": ("import textwrap\ntextwrap.wrap('a b', 10 ** 100)", "ok"),
    "dedent": ("import textwrap\nt = '   a\\n' * 100000\nwhile True:\n    textwrap.dedent(t)", "limit steps"),
    "predicate": (
        "import textwrap\ndef f(line):\n    while True: pass\ntextwrap.indent('a', 'b', f)",
        "limit steps",
    ),
    # ---- random
    "distribution of nothing": ("import random\nrandom.gammavariate(float('nan'), 1)", "limit steps"),
    "distribution of too much": ("import random\nrandom.gammavariate(float('inf'), 1)", "limit steps"),
    "beta of nothing": ("import random\nrandom.betavariate(float('nan'), float('nan'))", "limit steps"),
    "circular": ("import random\nrandom.vonmisesvariate(float('nan'), float('nan'))", "limit steps"),
    "bytes": ("import random\nrandom.randbytes(10 ** 9)", "limit memory"),
    "bits": ("import random\nrandom.getrandbits(10 ** 9)", "limit memory"),
    "ranges": ("import random\nb = 1 << 250000\nwhile True:\n    random.randrange(b)", "limit steps"),
    "samples": ("import random\nrandom.sample(range(10 ** 12), 10 ** 6)", "limit"),
    "sample of counts": ("import random\nrandom.sample('ab', counts=[10 ** 30, 1], k=3)", "error OverflowError"),
    "weights that are no numbers": (
        "import random\nwhile True:\n    random.choices('ab', 'ab' * 100000)",
        "error TypeError",
    ),
    "weights that are lists": ("import random\nrandom.choices('ab', [[0] * 1000] * 1000)", "error TypeError"),
    "more characters than a number can say": (
        "try:\n    'ab' * (1 << 250000)\nexcept ValueError:\n    pass",
        "limit memory",
    ),
    "more items than a number can say": ("try:\n    [1] * (1 << 250000)\nexcept ValueError:\n    pass", "limit memory"),
    "median of text": ("import statistics\nwhile True:\n    statistics.median('ab' * 100000)", "limit steps"),
    "generator of the machine": ("import random\nprint('REACHED', random.SystemRandom())", "refused"),
    "state": ("import random\nprint('REACHED', random.getstate())", "refused"),
    # ---- itertools, heapq, functools, operator, json
    "skipped": ("import itertools\nnext(itertools.islice(iter(range(10 ** 12)), 10 ** 9, None))", "limit steps"),
    "cycled": ("import itertools\nfor x in itertools.cycle(itertools.count()): pass", "limit"),
    "teed": ("import itertools\na, b = itertools.tee(itertools.count())\nfor x in a: pass", "limit"),
    "many tees": ("import itertools\nitertools.tee([], 10 ** 9)", "limit memory"),
    "grouped": ("import itertools\nlist(itertools.groupby(itertools.repeat(1)))", "limit"),
    "merged": ("import heapq, itertools\nlist(heapq.merge(itertools.count(), itertools.count()))", "limit"),
    "arranged": ("import itertools\nlist(itertools.permutations(range(20)))", "limit"),
    "index of an object": (
        "class K:\n    def __index__(self):\n        return 10 ** 8\nimport math\nmath.factorial(K())",
        "limit memory",
    ),
    "combinations of objects": (
        "class K:\n    def __index__(self):\n        return 10 ** 8\nimport math\nmath.comb(K(), K())\nmath.perm(K(), K())",
        "limit memory",
    ),
    "cached for ever": ("import functools\n@functools.cache\ndef f(x):\n    return f(x + 1)\nf(0)", "limit recursion"),
    "cache that grows": (
        "import functools\nf = functools.cache(lambda x: x)\ni = 0\nwhile True:\n    f(i)\n    i += 1",
        "limit",
    ),
    "partials": (
        "import functools\nf = print\nfor i in range(100000):\n    f = functools.partial(f, 'a')\nf()",
        "limit",
    ),
    "partials of a function": (
        "import functools\nf = lambda *a: 0\nwhile True:\n    f = functools.partial(f, *range(1000))",
        "limit",
    ),
    "private attribute": ("import operator\nprint('REACHED', operator.attrgetter('a.__class__')(1))", "refused"),
    "private method": ("import operator\nprint('REACHED', operator.methodcaller('__class__')(1))", "refused"),
    "item of a module": ("import operator, math\noperator.setitem(math, 'pi', 3)", "refused"),
    "format by a caller": (
        "import operator\nprint('REACHED', operator.methodcaller('format', 1)('{0.__class__}'))",
        "refused",
    ),
    "attributes copied": (
        "import functools\ndef f(): pass\nfunctools.update_wrapper(f, print, assigned=('__globals__',))",
        "refused",
    ),
    "ordering of a façade": ("import functools, string\nfunctools.total_ordering(string.Template)", "error TypeError"),
    "cached in a class of ours": ("import functools\nfunctools.cached_property(print).func", "error AttributeError"),
    "json of a loop": ("import json\nx = {}\nx['a'] = x\njson.dumps(x)", "error ValueError"),
    "json of a default": ("import json\njson.dumps({1}, default=lambda o: {1})", "limit recursion"),
    "json of doubles": ("import json\nx = []\nfor i in range(60):\n    x = [x, x]\njson.dumps(x)", "limit"),
    "json of depth": ("import json\nx = []\nfor i in range(100000):\n    x = [x]\njson.dumps(x)", "limit"),
    "json indented": (
        "import json\nx = list(range(100000))\nfor i in range(300):\n    x = [x]\njson.dumps(x, indent=16)",
        "limit",
    ),
    "json read": ("import json\njson.loads('[' * 100000)", "limit"),
    "json of objects": (
        "import json\ndef f(d):\n    return json.loads('{}', object_hook=f)\nf(0)",
        "limit recursion",
    ),
    "statistics of objects": (
        "import statistics\nclass K:\n    def __add__(self, o):\n        while True: pass\nstatistics.mean([K()])",
        "error TypeError",
    ),
    "quantiles": ("import statistics\nstatistics.quantiles([1, 2], n=10 ** 9)", "limit memory"),
    # ---- with, chain maps, types
    "with a file": ("with open('/etc/passwd') as f:\n    print('REACHED')", "refused"),
    "with an object": ("class A: pass\nwith A():\n    print('REACHED')", "refused"),
    "with a function": ("with print:\n    print('REACHED')", "refused"),
    "with a class of managers": (
        "class A:\n    def __enter__(self):\n        return 1\n    def __exit__(self, *a):\n        print('REACHED')\nwith A():\n    1 / 0",
        "refused",
    ),
    "spent in a block": (
        "from decimal import Context, Decimal, DivisionByZero, InvalidOperation, getcontext, localcontext\nwhile True:\n    try:\n        with localcontext():\n            while True: pass\n"
        "    except BaseException:\n        pass",
        "limit steps",
    ),
    "chain of itself": (
        "from collections import ChainMap\nc = ChainMap({})\nc.maps.append(c)\nprint(c['a'])",
        "limit recursion",
    ),
    "chain of a module": ("from collections import ChainMap\nimport math\nChainMap(math)['pi']", "error TypeError"),
    "chain that writes": (
        "from collections import ChainMap\nimport math\nc = ChainMap({})\nc.maps[0] = math\nc['pi'] = 3",
        "refused",
    ),
    "long chain": (
        "from collections import ChainMap\nc = ChainMap({})\nwhile True:\n    c = c.new_child()\n    'a' in c",
        "limit steps",
    ),
    "object changed": ("type(object()).x = 5", "refused"),
    "clock": ("import time\nprint('REACHED', time.time())", "refused"),
    "date": ("from datetime import datetime\nprint('REACHED', datetime.now())", "refused"),
    "hints evaluated": ("import typing\nprint('REACHED', typing.get_type_hints(print))", "refused"),
}


def ends_as(result: Any, expected: str) -> bool:
    status, _, kind = expected.partition(" ")
    return result.status == status and kind in ("", result.kind) and result.kind not in ("time", "crash")


@pytest.fixture(scope="module")
def short() -> Iterator[InterpreterPool]:
    """A pool whose calls have few steps, so that two hundred hostile programs take seconds."""
    with InterpreterPool(workers=1, limits=Limits(steps=150_000)) as pool:
        yield pool


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_program_ends_within_its_limits_and_leaves_no_trace(short: InterpreterPool, name: str) -> None:
    code, expected = HOSTILE[name]
    result = short.run(code)
    assert ends_as(result, expected), result
    assert "REACHED" not in result.output
    assert " at 0x" not in result.output + result.message
    assert len(result.output) + len(result.message) < 50_000
    assert short.run(PROBE).output == PROBE_OUTPUT


# What a hostile program could have changed.
PROBE = """
from decimal import Decimal, getcontext
import string, random, itertools
print(Decimal(1) / 3, getcontext().prec, string.Template('$a').substitute(a=1), random.random(), Decimal(9).sqrt())
"""
PROBE_OUTPUT = "0.3333333333333333333333333333 28 1 0.8444218515250481 3\n"


def test_no_hostile_program_needed_a_backstop(short: InterpreterPool) -> None:
    # Runs after the programs: the counters are those of all of them.
    assert (short.stats.kills, short.stats.crashes, short.stats.infrastructure_failures) == (0, 0, 0)


# ------------------------------------------------------------------ what else a user of a module relies on


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("import time", "import of 'time': there is no clock here"),
        ("from datetime import date", "import of 'datetime': there is no clock here"),
        ("import os.path", "import of 'os.path': nothing of the machine is in reach"),
        ("import numpy", "import of 'numpy' (available: abc, bisect, "),
        ("import enum\nenum.Flag", "enum.Flag"),
        ("from string import Formatter", "string.Formatter"),
    ],
)
def test_refused_module_or_name_says_why(pool: InterpreterPool, code: str, message: str) -> None:
    result = pool.run(code)
    assert result.status == "refused"
    assert message in result.message


@pytest.mark.parametrize(
    ("code", "output"),
    [
        ("numbers", "NameError"),
        ("enum", "NameError"),
        ("abc", "NameError"),
        ("decimal.Decimal(1)", "Decimal('1')"),
        ("cmath.sqrt(-1)", "1j"),
        ("collections.namedtuple('A', 'x')(1)", "A(x=1)"),
    ],
)
def test_modules_with_names_of_everyday_variables_need_an_import(pool: InterpreterPool, code: str, output: str) -> None:
    result = pool.run(code, echo=True)
    assert output in (result.output, result.kind)


def test_functions_are_those_of_this_version_of_python(pool: InterpreterPool) -> None:
    for module, name, since in (("itertools", "batched", 12), ("math", "sumprod", 12), ("math", "fma", 13)):
        result = pool.run(f"from {module} import {name}")
        assert result.ok is (sys.version_info >= (3, since)), result
        assert result.kind in ("", "ImportError")


def test_decimal_context_is_fresh_in_each_call_and_kept_in_a_session(pool: InterpreterPool) -> None:
    ours, other = InterpreterSession(), InterpreterSession()
    third = "1 / decimal.Decimal(3)"
    assert pool.run("decimal.getcontext().prec = 5\nx = decimal.Decimal(2)", session=ours).ok
    assert pool.run("decimal.getcontext().prec = 7", session=other).ok
    assert pool.run(third, echo=True).output == "Decimal('0.3333333333333333333333333333')"
    assert pool.run(third, echo=True, session=other).output == "Decimal('0.3333333')"
    assert pool.run("x / 3", echo=True, session=ours).output == "Decimal('0.66667')"


@pytest.mark.parametrize(
    "code",
    [
        "import random\nprint([random.gauss(0, 1), random.Random().random(), random.sample('abc', 2)], hash(float('nan')))",
        "from decimal import Decimal\nprint({Decimal(2), Decimal(1)}, hash(Decimal('NaN')) > 0, Decimal)",
        "from collections import namedtuple\nprint(hash(namedtuple('A', 'x')(None)), namedtuple('A', 'x'))",
        "from enum import Enum\nclass A(Enum):\n    X = 1\n    Y = 2\nprint({A.Y, A.X}, hash(A.X), A)",
        "from dataclasses import dataclass\n@dataclass(frozen=True)\nclass A:\n    x: object\nprint(hash(A(None)), {A(2), A(1)})",
        "import functools\nprint(functools.cache(lambda x: x), functools.partial(len), functools.singledispatch(print))",
    ],
)
def test_what_modules_make_and_draw_is_the_same_in_another_process(
    pool: InterpreterPool, short: InterpreterPool, code: str
) -> None:
    result = pool.run(code)
    assert result.ok, result
    assert "0x" not in result.output
    assert short.run(code) == result


# ------------------------------------------------------------------ against the native functions


@contextlib.contextmanager
def call() -> Iterator[None]:
    """A call in this process, so that functions of façades can be called."""
    METER.begin(Limits())
    try:
        yield
    finally:
        METER.close()


_LINES = st.text(st.sampled_from("ab \t\n"), max_size=40)
_PROSE = st.text(st.sampled_from('ab  -.\n\t!"é'), max_size=60)


@given(_LINES)
@settings(max_examples=200, deadline=None)
def test_dedent_is_that_of_python(text: str) -> None:
    with call():
        assert texts._dedent(text) == textwrap.dedent(text)


@given(_PROSE, st.integers(1, 12), st.booleans(), st.booleans(), st.none() | st.integers(1, 3))
@settings(max_examples=200, deadline=None)
def test_wrapping_is_that_of_python(text: str, width: int, whole: bool, hyphens: bool, lines: int | None) -> None:
    options = {"break_long_words": whole, "break_on_hyphens": hyphens, "max_lines": lines, "placeholder": "~"}
    with call():
        assert texts._wrap(text, width, **options) == textwrap.wrap(text, width, **options)


@given(
    st.text(st.sampled_from("ab$${}_ \n"), max_size=20),
    st.dictionaries(st.sampled_from(["a", "b", "_"]), st.integers()),
)
@settings(max_examples=300, deadline=None)
def test_template_is_filled_in_as_by_python(text: str, values: dict[str, int]) -> None:
    native, ours = string.Template(text), texts.Template(text)
    with call():
        assert ours.safe_substitute(values) == native.safe_substitute(values)
        try:
            expected: object = native.substitute(values)
        except (KeyError, ValueError) as error:
            expected = type(error)
        try:
            found: object = ours.substitute(values)
        except (KeyError, ValueError) as error:
            found = type(error)
        assert found == expected


_NUMBERS = st.decimals(allow_nan=True, allow_infinity=True) | st.integers(-99, 99).map(decimal.Decimal)
_METHODS = sorted(set(decimals._OPERATIONS) - {"exp", "ln", "log10", "fma", "is_canonical"})
_BINARY = ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "eq", "lt", "divmod", "radd", "rsub", "rtruediv")


def outcome(function: Any, *arguments: Any) -> Any:
    """What a call answers, natively: its result or the type of its exception."""
    try:
        result = function(*arguments)
    except (ArithmeticError, TypeError, ValueError) as error:
        return type(error)
    parts = result if type(result) is tuple else (result,)
    return tuple(repr(decimals.native_number(part) if isinstance(part, decimals.Decimal) else part) for part in parts)


@given(_NUMBERS, _NUMBERS | st.integers(-9, 9), st.sampled_from([*_BINARY, *_METHODS]))
@settings(max_examples=400, deadline=None)
def test_decimals_are_those_of_python(a: decimal.Decimal, b: Any, name: str) -> None:
    with call(), decimal.localcontext(decimal.Context()):
        ours = decimals.Decimal(decimals.Decimal(decimals._made(a)))
        other = decimals._made(b) if isinstance(b, decimal.Decimal) else b
        special = f"__{name}__"
        if hasattr(decimal.Decimal, special):
            assert outcome(getattr(ours, special), other) == outcome(getattr(a, special), b)
            return
        arguments = () if name.startswith("is_") or outcome(getattr(a, name)) is not TypeError else (b,)
        ours_arguments = (other,) if arguments else ()
        assert outcome(getattr(ours, name), *ours_arguments) == outcome(getattr(a, name), *arguments)


@given(_NUMBERS, st.sampled_from(["", ".2f", "10", ",", "e", ".3g", "%", "+.1f", "<8", "010.2f"]))
@settings(max_examples=150, deadline=None)
def test_decimals_read_as_in_python(a: decimal.Decimal, spec: str) -> None:
    with call(), decimal.localcontext(decimal.Context()):
        ours = decimals._made(a)
        assert (str(ours), repr(ours), to_format(ours, -1, spec)) == (str(a), repr(a), format(a, spec))
        assert a.is_nan() or hash(ours) == hash(a)
