"""Programs of the kinds that policies write, for the benchmark and the soak: seeded, distinct, with known answers."""

from __future__ import annotations

import io
import random
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import redirect_stdout

import numpy as np

from tool_gym.tasks.arithmetic import Arithmetic

Draw = Callable[[int], int]
"""An integer from 0 to below the argument."""


def _expression(draw: Draw) -> str:
    operators = [("+", "-", "*")[draw(3)] for _ in range(3)]
    a, b, c, d = (draw(999) + 1 for _ in range(4))
    return f"((({a}{operators[0]}{b}){operators[1]}{c}){operators[2]}{d})%{draw(97) + 2}"


def _print(draw: Draw) -> str:
    return f"print({draw(999)} + {draw(999)} * {draw(99)}, 'of', {draw(9999)})"


def _names(draw: Draw) -> str:
    return f"x = {draw(9999)}; y = x * {draw(99) + 2} + {draw(999)}; print(y % {draw(97) + 2})"


def _comprehension(draw: Draw) -> str:
    divisor = draw(4) + 2
    return f"[x * {draw(999)} + {draw(99)} for x in range({draw(8) + 3}) if x % {divisor} == {draw(divisor)}]"


ONE_LINERS: Mapping[str, tuple[float, Callable[[Draw], str]]] = {
    "expressions": (0.5, _expression),
    "prints": (0.2, _print),
    "names and prints": (0.15, _names),
    "comprehensions": (0.15, _comprehension),
}
"""Kind: its share of a mixture, and how one is made."""


def one_liners(seed: int, count: int, kind: str | None = None) -> list[str]:
    """``count`` distinct programs of a line, of one kind or in the shares of ONE_LINERS; same seed, same programs."""
    rng = random.Random(f"{seed} {kind}")
    kinds = {name: share for name, (share, _) in ONE_LINERS.items() if kind in (None, name)}
    found: dict[str, None] = {}
    while len(found) < count:
        (chosen,) = rng.choices(list(kinds), list(kinds.values()))
        found[ONE_LINERS[chosen][1](rng.randrange)] = None
    return list(found)


def native_answer(source: str) -> str:
    """What Python itself prints for a program of this module, the value of a lone expression included."""
    text = io.StringIO()
    with redirect_stdout(text):
        try:
            value = eval(source, {})
        except SyntaxError:
            exec(source, {})
        else:
            if value is not None:
                text.write(repr(value))
    return text.getvalue()


ENDLESS = (
    "while True: pass",
    "n = 0\nwhile True:\n    n += 1",
    "for i in itertools.count():\n    x = i * 2",
    "while 1:\n    for i in range(10):\n        pass",
)
"""Programs that end by the step budget alone."""


def demonstrations(seed: int, count: int) -> Iterator[str]:
    """The calls of Arithmetic's demonstrations, ``count`` problems in each style, as programs that print the value.

    Malformed ones are left out: nothing of them runs.
    """
    task, rng = Arithmetic(), np.random.default_rng(seed)
    styles = (*task.mixture, "double_answer")
    problems = task.sample_many(rng, [task.difficulties[i % len(task.difficulties)] for i in range(count)], "test")
    for style in styles:
        for problem in problems:
            for turn in task.demonstrate(problem, rng, style):
                for code in re.findall(r"<python>(.*?)</python>", turn, re.DOTALL):
                    try:
                        compile(code, "demonstration", "eval")
                    except SyntaxError:
                        continue
                    yield f"print({code})"


TYPICAL: Mapping[str, tuple[str, ...]] = {
    "loops": (
        """\
total = 0
for i in range(200):
    if i % 3 == 0 or i % 5 == 0:
        total += i
print(total)
""",
        """\
n = 27
steps = 0
while n != 1:
    if n % 2 == 0:
        n = n // 2
    else:
        n = 3 * n + 1
    steps += 1
print(steps)
""",
        """\
pairs = []
for a in range(1, 20):
    for b in range(a, 20):
        c = (a * a + b * b) ** 0.5
        if c == int(c):
            pairs.append((a, b, int(c)))
print(pairs)
print(len(pairs))
""",
    ),
    "functions": (
        """\
def factorial(n):
    if n <= 1:
        return 1
    return n * factorial(n - 1)

for k in range(8):
    print(k, factorial(k))
print(factorial(20) % 97)
""",
        """\
def fib(n):
    return n if n < 2 else fib(n - 1) + fib(n - 2)

numbers = [fib(n) for n in range(11)]
print(numbers)
""",
        """\
def is_prime(n):
    if n < 2:
        return False
    d = 2
    while d * d <= n:
        if n % d == 0:
            return False
        d += 1
    return True

primes = [n for n in range(100) if is_prime(n)]
print(primes)
print(sum(primes))
""",
        """\
def gcd(a, b):
    while b:
        a, b = b, a % b
    return a

best = 0
for a in range(20, 40):
    for b in range(a + 1, 40):
        best = max(best, gcd(a, b))
print(best)
""",
    ),
    "left to right": (
        """\
tokens = ['3', '+', '4', '*', '2', '-', '1', '*', '7']
value = int(tokens[0])
for k in range(1, len(tokens), 2):
    operator, number = tokens[k], int(tokens[k + 1])
    if operator == '+':
        value = value + number
    elif operator == '-':
        value = value - number
    else:
        value = value * number
    print(operator, number, value)
print(value % 10)
""",
        """\
a = 3 + 4
b = a * 2
c = b - 1
d = c * 7
result = d % 10
print(a, b, c, d)
print('answer:', result)
""",
    ),
    "dictionaries": (
        """\
text = 'the quick brown fox jumps over the lazy dog and the cat'
counts = {}
for word in text.split():
    counts[word] = counts.get(word, 0) + 1
for word in sorted(counts):
    if counts[word] > 1:
        print(word, counts[word])
""",
        """\
letters = {}
for letter in 'mississippi river':
    if letter in letters:
        letters[letter] = letters[letter] + 1
    else:
        letters[letter] = 1
ranked = sorted(letters.items(), key=lambda pair: (-pair[1], pair[0]))
for letter, count in ranked[:3]:
    print(letter, count)
""",
    ),
    "strings": (
        """\
word = 'restricted'
shifted = ''
for letter in word:
    shifted += chr((ord(letter) - ord('a') + 3) % 26 + ord('a'))
print(shifted)
print(word[::-1].upper())
""",
        """\
rows = []
for i in range(1, 7):
    cells = []
    for j in range(1, 7):
        cells.append(str(i * j).rjust(3))
    rows.append(' '.join(cells))
print('\\n'.join(rows))
""",
        """\
values = [3, 1, 4, 1, 5, 9, 2, 6]
mean = sum(values) / len(values)
spread = (sum([(v - mean) ** 2 for v in values]) / len(values)) ** 0.5
print(f'mean {mean:.2f}, spread {spread:.2f}')
print(f'{min(values)} to {max(values)}')
""",
    ),
    "lists": (
        """\
items = [5, 2, 9, 1, 7, 3, 8]
for i in range(len(items)):
    for j in range(len(items) - 1 - i):
        if items[j] > items[j + 1]:
            items[j], items[j + 1] = items[j + 1], items[j]
print(items)
""",
        """\
limit = 60
sieve = [True] * (limit + 1)
for n in range(2, 8):
    if sieve[n]:
        for multiple in range(n * n, limit + 1, n):
            sieve[multiple] = False
print([n for n in range(2, limit + 1) if sieve[n]])
""",
        """\
a = [[1, 2, 3], [4, 5, 6], [7, 8, 9]]
b = [[9, 8, 7], [6, 5, 4], [3, 2, 1]]
product = []
for row in a:
    out = []
    for column in zip(*b):
        out.append(sum([x * y for x, y in zip(row, column)]))
    product.append(out)
for row in product:
    print(row)
""",
    ),
}
"""Group: programs of 5 to 20 lines that RestrictedPython's stock set-up accepts too."""
