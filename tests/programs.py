"""A grammar of programs for fuzzing the interpreter: the accepted subset of Python, hostile shapes, raw text.

Expressions are grown from templates by kind: ``<int>`` in a template stands for any expression of that kind, and
the first line of a kind holds its leaves, so that Hypothesis shrinks towards them. Statements add names to the
scope, by kind too. One place in forty is filled with an expression of another kind: what happens then is Python's
business, and must be ours too.

What is documented to differ from Python is left out (docs/SANDBOX.md): sets hold integers and are shown sorted,
``random`` has a fixed seed, messages of errors are not printed.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

from hypothesis import strategies as st

T = TypeVar("T")
Draw = Callable[[st.SearchStrategy[int]], int]

# ------------------------------------------------------------------ expressions

GRAMMAR = r"""
int
    0; 1; 2; -1; 3; -7; 10; 255; True; 2**31; 10**18; -2**63;
    |
    <int> + <int>; <int> - <int>; <int> * <int>; <int> // <int>; <int> % <int>; <int> & <int>; <int> | <int>;
    <int> ^ <int>; <int> << <small>; <int> >> <small>; <int> ** <small>; -<int>; ~<int>; +<int>; abs(<int>);
    <int> if <bool> else <int>; <bool> and <int>; <int> or <int>; pow(<int>, <small>, <int>);
    (lambda a, b=<int>: a - b)(<int>); len(<str>); len(<list>); len(<dict>); len(<set>); len(<range>); len(<counter>);
    len(<bytes>); len(<deque>); int(<str>); int(<float>); int(<bool>); int(<str>, 16); int(<frac>); round(<float>);
    round(<int>, <small>); int(); sum(<ints>); sum(<ints>, <int>); sum(<range>); max(<ints>); min(<ints>);
    max(<int>, <int>); max(<strs>, key=len, default=<int>); min(<ints>, default=<int>); max(<ints>, key=<function>);
    sum(x for x in <ints>); <ints>[<small>]; <range>[<small>]; <bytes>[<small>]; <ints>.index(<int>);
    <ints>.count(<int>); <tuple>.index(<int>); <str>.count(<str>); <str>.find(<str>); <str>.rfind(<str>, <small>);
    <str>.index(<str>); ord(<str>); max(hash(<int>), 0) * 0; <int>.bit_length(); (<int>).bit_count();
    (<int>).numerator; <function>(<int>); operator.add(<int>, <int>); math.gcd(<int>, <int>); math.factorial(<small>);
    math.comb(<small>, <small>); math.isqrt(<int>); math.lcm(<int>, <int>); math.floor(<float>); math.ceil(<float>);
    math.trunc(<float>); math.prod(<ints>); math.perm(<small>); functools.reduce(lambda a, b: a * b, <ints>, <int>);
    functools.reduce(operator.add, <ints>); bisect.bisect(<ints>, <int>);
    bisect.bisect_left(sorted(<ints>), <int>, <small>); int.from_bytes(<bytes>, 'big'); <range>.index(<int>);
    <range>.count(<int>); <counter>['a']; <dict>.get(<str>, <int>); <dict>['a']; <counter>.total(); <deque>[<small>];
    statistics.mode(<ints>); next(<iter>); next(<iter>, <int>); <default>['a']; <frac>.numerator;
    divmod(<int>, <int>)[<small>]; ord(<bytes>[:1]); next(iter(<ints>)); <ints>.pop(); <ints>.pop(<small>);
    hash(<int>) == max(hash(<int>), 0) * 0; int.bit_length(<int>); int(<str>, base=<small>);
    statistics.median_low(<ints>); <dict>.pop('a', <int>); <str>.rindex(<str>); len(<frozenset>);
small
    0; 1; 2; 3; -1; 4;
    |
    len(<ints>); <small> + 1; len(<str>) % 4;
float
    0.0; 1.5; -2.5; 0.1; -0.0; 1e300; 1e-9; 3.0; float('inf'); float('nan');
    |
    <float> + <float>; <float> - <int>; <float> * <float>; <int> / <int>; <float> // <float>; <float> % <int>;
    -<float>; <float> ** <small>; <int> ** -<small>; float(<str>); float(<int>); round(<float>, <small>);
    round(<float>, ndigits=1); abs(<float>); sum(<floats>); sum(x for x in <floats>); sum(<floats>, <float>);
    max(<floats>); min(<floats>, key=<function>); math.sqrt(<float>); math.sin(<float>); math.log(<int>);
    math.log(<float>, 2); math.exp(<small>); math.hypot(<int>, <int>); math.fsum(<floats>); math.fabs(<int>);
    math.copysign(<float>, <float>); math.fmod(<float>, <int>); math.dist([1, 2], [3, 4]); statistics.mean(<floats>);
    statistics.median(<floats>); statistics.stdev(<floats>); statistics.fmean(<ints>); statistics.variance(<ints>);
    statistics.pstdev(<floats>); statistics.harmonic_mean(<ints>); statistics.mean(<ints>); statistics.median(<ints>);
    float(<frac>); <complex>.real; <float>.conjugate(); <floats>[<small>]; float.fromhex('0x1.8p1');
    math.degrees(<float>); float(); <int> * <float>; <float> - <frac>; abs(<complex>); math.pow(<int>, <small>);
    math.cbrt(<int>); math.modf(<float>)[0];
complex
    1j; (2-1j); (0.5+0j);
    |
    <complex> + <complex>; <complex> * <int>; <complex> / <complex>; <complex> ** <small>; -<complex>;
    <complex>.conjugate(); complex(<int>, <float>); complex(<str>); complex(real=<int>, imag=1); <complex> - <float>;
bool
    True; False;
    |
    not <any>; <any> == <any>; <any> != <any>; <int> < <int>; <float> >= <int>; <str> < <str>; <list> < <list>;
    <tuple> <= <tuple>; <int> < <int> < <int>; <int> == <float> != <any>; <int> in <list>; <str> in <str>;
    <any> not in <tuple>; <str> in <dict>; <int> in <set>; <int> in <range>; <any> is None; <any> is not <none>;
    bool(<any>); <bool> and <bool>; <bool> or <bool>; <set> <= <set>; <set> < <set>; <str>.startswith(<str>);
    <str>.endswith((<str>, <str>)); <str>.isalpha(); <str>.isdigit(); <str>.isupper(); <str>.isspace();
    isinstance(<any>, <type>); isinstance(<any>, (<type>, <type>)); issubclass(<type>, <type>); callable(<any>);
    hasattr(<any>, 'count'); all(<list>); any(<ints>); all(x for x in <ints>); any(x > 1 for x in <ints>);
    <float>.is_integer(); math.isnan(<float>); math.isclose(<float>, <float>); <set>.isdisjoint(<ints>);
    <set>.issubset(<set>); <set>.issuperset(<ints>); type(<any>) is <type>; type(<any>) == <type>;
    <type> in (int, str); <set> == <frozenset>; <dict> == <dict>; <deque> == <deque>; <counter> == <dict>;
    <counter> <= <counter>; <range> == <range>; <frac> < <float>; <int> in <dict>.values(); <dict>.keys() == <set>;
    <dict>.keys() <= {'a', 'b', 'k', 1}; operator.contains(<ints>, <int>); <any> in <iter>; <bytes> in <bytes>;
    <int> in <bytes>; <str>.isidentifier(); <bool> ^ <bool>; <bool> & <bool>; <ints> == <ints>; <list> is <list>;
str
    'abc'; ''; 'a'; 'Hello World'; 'a,b,,c'; ' x '; '12'; '-3.5'; 'éß'; 'a\nb\tc'; "it's"; '0x1f';
    '\ud83d\ude00'.encode('utf-16', 'surrogatepass').decode('utf-16');
    |
    <str> + <str>; <str> * <small>; <str>[<small>]; <str>[<small>:]; <str>[:<small>]; <str>[::<small>];
    <str>[<small>:<small>:<small>]; <str> % <any>; str(<any>); repr(<any>); (lambda v: f'{v}')(<any>);
    (lambda v: f'{v!r:>5}')(<any>); (lambda v, w: f'{v:{w}}|{v=}')(<int>, <small>); (lambda v: f'{v!s:^8}')(<str>);
    format(<any>, <spec>); (lambda v, n: f'{v:.{n}f}')(<float>, <small>); <percent> % <any>; <percent> % (<any>,);
    <percent> % (<any>, <any>); '%s %s' % <tuple>; '%(a)s' % <dict>; '%*d' % (<small>, <int>);
    <braces>.format(<any>, <small>, x=<any>); <braces>.format(*<list>, x=<int>, w=<small>);
    <braces>.format(<any>, <small>, <small>, <any>); '{a}'.format_map(<dict>); <str>.upper(); <str>.lower();
    <str>.title(); <str>.capitalize(); <str>.swapcase(); <str>.strip(); <str>.lstrip(<str>); <str>.rstrip('c');
    <str>.casefold(); <str>.replace(<str>, <str>); <str>.replace(<str>, <str>, <small>); <str>.join(<strs>);
    <str>.join(map(str, <list>)); ', '.join(x for x in <strs>); <str>.center(<int> % 9, '*'); <str>.ljust(<small>);
    <str>.rjust(6, <str>); <str>.zfill(<int> % 9); <str>.expandtabs(<small>); <str>.removeprefix(<str>);
    <str>.removesuffix('c'); <str>.translate(str.maketrans('abc', 'xyz')); <str>.translate({97: None, 98: 'BB'});
    chr(<int> % 1000); hex(<int>); bin(<int>); oct(<int>); ascii(<any>); <strs>[<small>]; min(<strs>); max(<str>);
    <bytes>.decode(); <bytes>.decode('latin-1'); <bytes>.hex(); sorted(<strs>, key=str.lower)[0];
    str(<bytes>, 'utf-8'); <str>.partition(<str>)[2]; json.dumps(<plain>); json.dumps(<plain>, indent=<small>);
    json.dumps(<dict>, sort_keys=True); string.ascii_lowercase[:<small>]; re.sub(<pattern>, <str>, <str>);
    re.sub(<pattern>, lambda m: m.group().upper(), <str>); re.sub('(a)', r'[\1]', <str>, count=<small>);
    string.capwords(<str>); re.escape(<str>); re.search(<pattern>, <str>).group(); re.match(<pattern>, <str>)[0];
    <str> if <bool> else <str>; <str> and <str>; type(<any>).__name__; <type>.__name__;
    string.Template('$a ${b} $$').substitute(a=<any>, b=<int>); string.Template(<str>).safe_substitute(<dict>);
    copy.copy(<str>); str(object=<int>); str(); <str>.format(<int>); str(<error>(<any>)); repr(<error>(<any>));
    repr(<error>(<any>, <int>)); str(<error>()); ''.join(reversed(<str>)); ''.join(sorted(<str>)); str.upper(<str>);
    <str>.encode().decode('ascii', 'replace');
bytes
    b'abc'; b''; b'\x00\xff'; b'12';
    |
    <bytes> + <bytes>; <bytes> * <small>; <bytes>[<small>:]; <str>.encode(); <str>.encode('ascii', 'ignore');
    bytes(<small>); bytes(<ints>); (<int> % 256).to_bytes(2, 'big');
    (<small>).to_bytes(length=2, byteorder='little', signed=True); bytes(<str>, 'utf-8');
    bytes(<str>, encoding='ascii'); bytes.fromhex('00ff');
none
    None;
    |
    print(<any>); <ints>.append(<int>); <dict>.get('zz'); <ints>.sort(); print(<any>, <any>, sep=<str>, end=<str>);
    print(*<list>); re.match('zz', <str>);
ints
    []; [1]; [3, 1, 2]; [1, 1, 0]; [5, -5, 2, 8];
    |
    <ints> + <ints>; <ints> * <small>; <ints>[<small>:]; <ints>[::<small>]; sorted(<ints>);
    sorted(<ints>, reverse=<bool>); sorted(<ints>, key=<function>); list(<range>); list(<set>)[:0]; sorted(<set>);
    list(map(<function>, <ints>)); list(filter(<function>, <ints>)); list(filter(None, <ints>));
    [x for x in <ints> if x > <int>]; <ints>.copy(); [<function>(x) for x in <ints>];
    [x + y for x in <ints> for y in <range>]; [*<ints>, <int>]; [*<range>, *<ints>]; list(reversed(<ints>));
    list(itertools.accumulate(<ints>)); list(itertools.chain(<ints>, <range>));
    list(itertools.islice(<ints>, <small>)); list(itertools.accumulate(<ints>, max, initial=<int>));
    sorted(<ints>, key=lambda x: (-x, x)); list(itertools.takewhile(<function>, <ints>));
    list(itertools.dropwhile(<function>, <ints>)); list(itertools.filterfalse(<function>, <ints>));
    list(itertools.compress(<ints>, <list>)); heapq.nlargest(<small>, <ints>);
    heapq.nsmallest(2, <ints>, key=<function>); list(<deque>); list(<bytes>); list(<dict>.values());
    list(<counter>.values()); [len(x) for x in <strs>]; list(range(<small>, <int> % 20)); list(dict.fromkeys(<ints>));
    copy.deepcopy(<ints>); list(itertools.repeat(<int>, <small>)); statistics.multimode(<ints>);
floats
    [0.1]; [0.1, 0.2, 0.3]; [1.5, 2]; [1e16, 1.0, -1e16]; [2.0, 2.0, 3.5];
    |
    [x / 2 for x in <ints>]; <floats> + <floats>; sorted(<floats>); list(map(float, <ints>));
    [round(x, 1) for x in <floats>];
strs
    []; ['a']; ['b', 'a', 'C']; ['', 'ab', 'a'];
    |
    <str>.split(); <str>.split(<str>); <str>.split(',', <small>); <str>.rsplit(sep=' ', maxsplit=1);
    <str>.splitlines(); <str>.splitlines(keepends=True); list(<str>); <strs> + <strs>; sorted(<strs>);
    sorted(<strs>, key=len, reverse=True); [x.upper() for x in <strs>]; list(map(str, <list>));
    list(map(str.strip, <strs>)); re.findall(<pattern>, <str>); re.split(<pattern>, <str>);
    re.split(',', <str>, maxsplit=1); [repr(x) for x in <list>]; list(<dict>)[:0]; sorted(<dict>, key=str);
    [m.group() for m in re.finditer(<pattern>, <str>)]; [f'{i}:{x}' for i, x in enumerate(<strs>)];
    [a + b for a, b in zip(<strs>, <str>)]; sorted(map(str, <set>)); list(<counter>.elements());
list
    []; [1, 'a']; [None, 2.5, [1]]; [(1, 2), 'x'];
    |
    <ints>; <strs>; [<any>, <any>]; list(<tuple>); <list> + <list>; <list> * <small>; <list>[<small>:<small>];
    list(enumerate(<list>)); list(enumerate(<strs>, <int>)); [None] * <small>; list(zip(<ints>, <strs>));
    list(zip(<ints>, <str>, <range>)); list(zip(<ints>, <ints>, strict=True)); [list(x) for x in zip(*<pairs>)];
    list(<dict>.items()); list(<iter>); sorted(<list>, key=str); list(itertools.product(<ints>, <str>))[:5];
    list(itertools.permutations(<ints>, 2))[:5]; list(itertools.combinations(<str>, r=2));
    list(itertools.zip_longest(<ints>, <str>, fillvalue=<any>)); [(k, list(g)) for k, g in itertools.groupby(<ints>)];
    [(k, len(list(g))) for k, g in itertools.groupby(<strs>, key=len)]; list(itertools.pairwise(<ints>));
    list(itertools.starmap(pow, [(2, 3)])); [list(range(x)) for x in [1, 2]]; copy.copy(<list>);
    copy.deepcopy(<list>); json.loads(json.dumps(<plain>)); json.loads(<str>); list(<range>); sorted(<pairs>);
    sorted(<list>); [<any> for _ in <range>]; list(map(lambda a, b: (a, b), <ints>, <str>));
    list(map(next, [<iter>, <iter>])); list(iter(<ints>.pop, <int>)); [*<iter>]; list(<counter>.most_common());
    <counter>.most_common(<small>); list(reversed(<list>)); list(itertools.chain.from_iterable(<pairs>));
    list(filter(lambda x: x, <list>)); [x for x in <list> if x]; list(itertools.islice(itertools.count(<int>, 2), 3));
    list(itertools.islice(itertools.cycle(<str>), 3)); [list(t) for t in itertools.tee(<ints>)];
    list(itertools.islice(<iter>, <small>, None)); re.findall('(a)(.)?', <str>);
    [m.span() for m in re.finditer(<pattern>, <str>)]; list(re.search(<pattern>, <str>).groups());
tuple
    (); (1,); (1, 'a'); (2, (3, 4));
    |
    (<any>,); (<any>, <any>); tuple(<list>); <tuple> + <tuple>; <tuple> * <small>; <tuple>[<small>:];
    divmod(<int>, <int>); <str>.partition(<str>); <str>.rpartition(','); tuple(x for x in <ints>); tuple(<str>);
    (*<ints>, <int>); tuple(sorted(<ints>)); <float>.as_integer_ratio(); min([<tuple>, <tuple>]); math.modf(<float>);
    math.frexp(<float>); tuple(map(<function>, <ints>)); divmod(<float>, <int>); re.search(<pattern>, <str>).span();
pairs
    []; [(1, 'b'), (0, 'a')]; [('x', 1), ('y', 2)];
    |
    list(<dict>.items()); list(zip(<ints>, <strs>)); list(enumerate(<str>)); sorted(<pairs>, key=lambda p: p[1]);
    <counter>.most_common(); sorted(<dict>.items(), key=lambda kv: str(kv));
dict
    {}; {'a': 1}; {'b': 2, 'a': 1}; {1: 'x', 'k': None};
    |
    {<str>: <any>}; {<any>: <int>, <str>: <any>}; dict(<pairs>); dict(a=<any>, b=<int>); {**<dict>, 'c': <any>};
    <dict> | <dict>; {k: v for k, v in <pairs>}; {x: x * 2 for x in <ints>}; dict(zip(<strs>, <ints>));
    dict.fromkeys(<strs>, <int>); <dict>.copy(); {v: k for k, v in <dict>.items()}; dict(<counter>); dict(<default>);
    dict(<ordered>); copy.deepcopy(<dict>); json.loads('{"a": [1, 2.5, null]}'); dict(<dict>, z=1);
    re.match('(?P<N>.)', <str>).groupdict(); {i: c for i, c in enumerate(<str>)};
    dict(sorted(<dict>.items(), key=str)); {len(x): x for x in <strs>}; dict(enumerate(<strs>));
    collections.Counter(<str>) and {};
set
    set(); {1}; {3, 1, 2};
    |
    <set> | <set>; <set> & <set>; <set> - <set>; <set> ^ <set>; set(<ints>); {x % 3 for x in <ints>};
    {*<ints>, <int>}; <set>.union(<ints>, <range>); <set>.intersection(<set>); <set>.difference(<ints>);
    set(<frozenset>); <set>.symmetric_difference(<ints>); <set>.copy(); {<int>, <int>}; set(<range>);
    <dict>.keys() & {'a'} and {1}; set(map(len, <strs>)); copy.copy(<set>); <frozenset> | <set> and <set>;
frozenset
    frozenset(); frozenset([2, 1]);
    |
    frozenset(<ints>); <frozenset> | <set>; <frozenset> & <frozenset>; <frozenset>.union(<ints>); frozenset(<set>);
range
    range(3); range(0); range(5, 0, -2); range(-1, 2);
    |
    range(<small>); range(<small>, <small>); range(<int> % 9, <small>, -1); <range>[<small>:]; <range>[::-1];
    range(len(<strs>));
counter
    collections.Counter(); collections.Counter('abca'); collections.Counter(a=2, b=-1);
    |
    collections.Counter(<str>); collections.Counter(<ints>); <counter> + <counter>; <counter> - <counter>;
    <counter> | <counter>; <counter> & <counter>; +<counter>; -<counter>; collections.Counter(<counter>);
    collections.Counter(x % 2 for x in <ints>); collections.Counter({'a': <int>}); <counter>.copy();
    copy.deepcopy(<counter>);
deque
    collections.deque(); collections.deque([1, 2, 3]); collections.deque('abc', maxlen=2);
    |
    collections.deque(<ints>); collections.deque(<str>, <small>); collections.deque(<ints>, maxlen=2);
    <deque> + <deque>; <deque>.copy(); copy.deepcopy(<deque>); <deque> * <small>; copy.copy(<deque>);
default
    collections.defaultdict(int); collections.defaultdict(list, a=[1]);
    |
    collections.defaultdict(list); collections.defaultdict(lambda: <any>); copy.copy(<default>);
    collections.defaultdict(<type>); <default>.copy(); copy.deepcopy(<default>); <default> | <dict>;
ordered
    collections.OrderedDict(); collections.OrderedDict([('b', 1), ('a', 2)]);
    |
    collections.OrderedDict(<pairs>); collections.OrderedDict(a=<any>); collections.OrderedDict.fromkeys(<str>);
    copy.deepcopy(<ordered>); <ordered>.copy(); <ordered> | <dict>;
frac
    fractions.Fraction(1, 3); fractions.Fraction(-3, 2); fractions.Fraction('0.25');
    |
    <frac> + <frac>; <frac> * <int>; <frac> - <frac>; <frac> / <frac>; fractions.Fraction(<int>, <int>);
    <frac> ** <small>; abs(<frac>); fractions.Fraction(<str>); fractions.Fraction(<float>); <frac> // 1 + <frac>;
    <frac> % 1; -<frac>; <frac>.limit_denominator(10); round(<frac>, <small>); fractions.Fraction(numerator=<int>);
    sum([<frac>, <frac>], <frac>); <int> / <frac>; statistics.mean([<frac>, <frac>]); max(<frac>, <frac>);
    <int> - <frac>;
iter
    iter([]); iter([1, 2]); (x * 2 for x in [1, 2, 3]); iter('ab');
    |
    iter(<list>); map(<function>, <ints>); zip(<ints>, <str>); enumerate(<strs>); filter(<function>, <ints>);
    reversed(<ints>); (x for x in <ints> if x); itertools.chain(<ints>, <strs>); iter(<dict>); iter(<tuple>);
    iter(<str>); iter(<range>); reversed(<range>); itertools.islice(<iter>, 2); iter(<dict>.items()); map(str, <any>);
    enumerate(<any>); zip(<any>, <ints>); itertools.repeat(<int>, 2); reversed(<any>); iter(<any>);
    filter(None, <any>); map(<function>, <ints>, <ints>); zip(<iter>, <iter>); itertools.accumulate(<strs>);
    itertools.product(<ints>, repeat=2); itertools.chain.from_iterable([<ints>, <str>]);
    itertools.combinations_with_replacement(<ints>, 2);
type
    int; str; float; list; tuple; dict; bool; set; bytes; complex; frozenset; object; type(None);
    |
    type(<any>);
error
    ValueError; TypeError; KeyError; IndexError; ZeroDivisionError; LookupError; Exception; StopIteration;
    |
    ArithmeticError; OverflowError; RuntimeError; NameError; AttributeError; AssertionError; NotImplementedError;
    BaseException; UnicodeDecodeError; KeyboardInterrupt; SystemExit; MemoryError; RecursionError; OSError;
pattern
    'a'; '.'; '[a-c]'; r'\w+'; '(a)(b)?'; '(?P<N>[a-z])'; 'a|b'; r'\s*'; '^a'; 'c$'; r'\b'; '(?i)h'; '[^a]';
    r'(\w)\1';
    |
    '(a|ab)(c|bcd)*'; '(?:a|b)+?c'; r'[\d,]+'; '(?<=a)b'; '(?!b).'; r'\.|,'; '(a*)*'; '(a|b)*?c?'; r'[A-Z]\S';
    '(?s).+'; '(?x) a b # c'; 'a{1,2}'; '(?P<N>a)(?P=N)?'; r'(?i:HELLO) \w'; '(x)?(?(1)y|.)'; '(?m)^.'; r'\W';
    r'[^\W\d]'; r'(?a:\w)+'; r'[\w-]+'; r'(?<!a)\b.'; '('; '*a'; r'\Z'; '$'; 'a++b'; '(?>a|ab)c';
spec
    ''; 'd'; '>6'; '<6'; '^7'; '05'; '.2f'; '+'; ','; 'x'; '#x'; 'b'; 'e'; 'g'; '%'; '*^9'; '_'; 's'; '.1'; ' ';
    '=+6'; 'n'; 'c';
    |
    '.3'; '>+8.2f'; '08.3f'; '<#10b'; ',.1f'; 'E'; 'o'; 'X'; '_x'; '.0%'; 'z'; '5c'; '>>3'; '.-1f'; '10_'; '^'; '+s';
    'é>5'; 'G'; 'F';
percent
    '%s'; '%d'; '%5.1f'; '%r'; '%x'; '%-5s|'; '%05d'; '%e'; '%c'; '%%'; '%+d'; '%.2s'; '%i'; '%o'; '%g'; '%a'; '% d';
    '%#x';
    |
    '%5s|%s'; '%-8.3e|'; '%+5d'; '%(a)s'; '%(a)d %%'; '%'; '%y'; '%5%'; '%ld'; '%.0f'; '%F'; '%G'; '%X'; '%*.*f';
    '% '; '%s%'; '%-05d'; '%u'; '%(a'; '%.3d'; '%5c'; '%E';
braces
    '{}'; '{0}'; '{!r}'; '{:>5}'; '{} {}'; '{1} {0}'; '{x}'; '{:{}}'; '{{}}'; '{0:{1}}'; '{:{}.{}}|{}'; '{!s:^6}';
    '{!a}'; '{0} {}'; '{} {0}'; '{'; '}'; '{:d}'; '{:.1f}'; '{x!r:>{w}}';
    |
    '{!x}'; '{0!r:*^9}'; '{x:{w}}'; '{:{w}}'; '{2}'; '{y}'; '{:>{}}{}'; '{-1}'; '{ 0}'; '{0:}'; '{:,}'; '{:%}';
    '{!r:}'; '{00}'; '{}{x}{}'; '{:{:{}}}';

    |
function
    abs; str; len; (lambda x: x % 2); (lambda x: -x); bool; (lambda x: x > 1);
    |
    lambda x: x + <int>; functools.partial(pow, <int>); (lambda n: lambda x: x * n)(<int>); operator.neg; math.sqrt;
    lambda x, y=<int>: (x, y); int; float; repr; lambda *a: len(a); lambda x: <any>; functools.partial(max, <int>);
    operator.itemgetter(<small>); lambda x: [x] * <small>; functools.lru_cache(maxsize=2)(lambda x: x * 2);
plain
    1; None; 'a';
    |
    <int>; <ints>; <strs>; <str>; {'a': <int>, 'b': [<str>]}; <dict>; <float>; [<bool>, <none>]; <pairs>; {1: <str>};
"""
"""By kind: its leaves, then after the bar the templates that use other kinds."""

_PLACE = re.compile(r"<([a-z]+)>")
_ATOM = re.compile(r"[a-zA-Z]\w*|'[^']*'|\[[^\[\]]*\]|\{[^{}]*\}")


def _parts(text: str) -> list[str]:
    """Templates between semicolons."""
    return [part for line in text.splitlines() for part in line.strip().rstrip(";").split("; ") if part]


def _members(text: str) -> list[str]:
    """Templates of several lines, with an empty line between."""
    return text.strip("\n").split("\n\n")


def _sections(text: str) -> dict[str, list[str]]:
    """Templates by the unindented line before them."""
    sections: dict[str, list[str]] = {}
    parts: list[str] = []
    for line in text.strip("\n").splitlines():
        if line.startswith(" "):
            parts += _parts(line)
        else:
            parts = sections[line] = []
    return sections


KINDS: dict[str, tuple[list[str], list[str]]] = {
    kind: (parts[: parts.index("|")], parts[parts.index("|") + 1 :]) for kind, parts in _sections(GRAMMAR).items()
}
ANY = _parts("""
    int; str; ints; float; list; dict; tuple; bool; none; strs; bytes; range; counter; deque; default; ordered; frac;
    complex; floats; pairs
""")
"""Kinds whose values read the same in every process."""
AUGMENTED = {
    "int": ("+= -= *= //= %= &= |= ^= <<= >>=", "int small float bool"),
    "float": ("+= -= *= /= //= %=", "float int"),
    "str": ("+= *= %=", "str small int"),
    "ints": ("+= *=", "ints small range iter tuple"),
    "list": ("+= *=", "list small str dict"),
    "tuple": ("+= *=", "tuple small list"),
    "bytes": ("+= *=", "bytes small"),
    "set": ("|= &= -= ^=", "set frozenset"),
    "frozenset": ("|= &= -= ^=", "set frozenset"),
    "dict": ("|=", "dict pairs counter"),
    "counter": ("+= -= |= &=", "counter"),
    "deque": ("+= *=", "deque ints small str"),
    "frac": ("+= -= *= /=", "frac int float"),
    "complex": ("+= *= /=", "complex int"),
    "default": ("|=", "dict"),
    "ordered": ("|=", "dict"),
}
"""By kind of target: operators, and kinds of operand."""
MUTATIONS = _sections(r"""
ints
    append(<int>); extend(<ints>); insert(<small>, <int>); pop(); pop(<small>); remove(<int>); reverse(); sort();
    sort(key=<function>); sort(reverse=True); clear(); extend(<range>);
strs
    append(<str>); sort(key=len); extend(<str>); reverse(); insert(0, <str>); sort(key=str.lower);
list
    append(<any>); extend(<list>); insert(<small>, <any>); pop(); remove(<any>); reverse(); sort(key=str); clear();
dict
    update(<dict>); update(<pairs>); setdefault(<str>, <any>); pop(<str>); pop('a', None); popitem(); clear();
    update(a=<any>);
set
    add(<int>); discard(<int>); remove(<int>); update(<ints>); difference_update(<set>); clear();
    update(<ints>, <set>);
counter
    update(<str>); subtract(<str>); update(<dict>); pop('a'); update(a=<int>); clear(); setdefault('z', <int>);
deque
    append(<any>); appendleft(<int>); pop(); popleft(); rotate(<small>); extend(<ints>); extendleft(<ints>); clear();
    reverse(); insert(<small>, <int>); remove(<int>); rotate();
default
    setdefault('a', <any>); update(<dict>); pop('a', 0); popitem(); clear();
ordered
    move_to_end('a'); move_to_end('a', last=False); popitem(); popitem(last=False); update(<dict>);
""")
"""Calls that change a value, by its kind."""
MODULES = _parts("""
    bisect; collections; copy; fractions; functools; heapq; itertools; json; math; operator; re; statistics; string
""")
"""Modules in scope that behave as Python's own."""


@functools.cache
def _below(count: int) -> st.SearchStrategy[int]:
    return st.integers(0, count - 1)


def indented(lines: Sequence[str]) -> list[str]:
    """A block one level deeper; ``pass`` if it is empty."""
    return ["    " + line for line in lines] or ["    pass"]


class Writer:
    """A program under construction: what to choose from, and the names in scope by kind."""

    def __init__(self, draw: Draw, names_first: bool = False) -> None:
        self._draw = draw
        self._names_first = names_first
        self.scope: dict[str, list[str]] = {}
        self._serial = 0
        self.in_loop = self.in_function = False

    # -- choices

    def below(self, count: int) -> int:
        """A number from 0 to ``count`` - 1; simplest is 0."""
        return self._draw(_below(count))

    def pick(self, options: Sequence[T]) -> T:
        """One of the options; the first is the simplest."""
        return options[self.below(len(options))]

    def chance(self, one_in: int) -> bool:
        """True once in ``one_in`` times; simplest is False."""
        return self.below(one_in) == one_in - 1

    def fresh(self, stem: str) -> str:
        """A name that the program has not used."""
        self._serial += 1
        return f"{stem}{self._serial}"

    def bind(self, name: str, kind: str) -> None:
        """Add a name to the scope."""
        self.scope.setdefault(kind, []).append(name)

    @contextmanager
    def inner(self, function: bool = False, loop: bool = False) -> Iterator[None]:
        """A block whose new names are forgotten after it."""
        before, flags = {kind: list(names) for kind, names in self.scope.items()}, (self.in_function, self.in_loop)
        self.in_function = function or self.in_function
        self.in_loop = loop or (self.in_loop and not function)
        yield
        self.scope = before
        self.in_function, self.in_loop = flags

    # -- expressions

    def expression(self, kind: str, depth: int = 2) -> str:
        """Source of an expression of ``kind``, its operators at most ``depth`` deep."""
        if kind == "any" or self.chance(40):
            kind = self.pick(ANY)
        leaves, templates = KINDS[kind]
        names = self.scope.get(kind, [])
        if names and self.below(4) < (3 if self._names_first and depth < 2 else 1):
            return self.pick(names)
        if depth <= 0 or not templates or self.chance(4):
            return self.pick([*names, *leaves] if self._names_first else leaves)
        return self.fill(self.pick(templates), depth - 1)

    def fill(self, template: str, depth: int = 1) -> str:
        """A template with its places filled, in parentheses where a part is more than an atom."""

        def part(place: re.Match[str]) -> str:
            source = self.expression(place[1], depth)
            return source if _ATOM.fullmatch(source) else f"({source})"

        return _PLACE.sub(part, template)

    def shown(self, kind: str, depth: int = 2) -> str:
        """An expression that prints the same in every process."""
        source = self.expression(kind, depth)
        if kind in ("set", "frozenset"):
            return f"sorted({source})"
        return {"iter": f"list(itertools.islice({source}, 9))", "function": f"({source})(2)"}.get(kind, source)

    def kind(self) -> str:
        """A kind to make a value of."""
        return self.pick([*ANY, "set", "frozenset", "iter", "function", "type"])

    # -- statements

    def block(self, depth: int, most: int = 3) -> list[str]:
        """Some statements."""
        lines: list[str] = []
        for _ in range(1 + self.below(most)):
            lines += self.statement(depth)
        return lines

    def statement(self, depth: int) -> list[str]:
        """One statement, as lines."""
        makers: list[Callable[[int], list[str]]] = [
            self.show,
            self.show,
            self.assign,
            self.change,
            self.store,
            self.odd,
        ]
        if depth > 0:
            makers += [self.branch, self.loop, self.attempt, self.function, self.generator, self.classes, self.closure]
        return self.pick(makers)(depth)

    def show(self, depth: int) -> list[str]:
        """Print an expression, or the type of its error."""
        source = self.shown(self.kind(), 3)
        return [f"print({source})"] if self.chance(4) else [f"show(lambda: {source})"]

    def assign(self, depth: int) -> list[str]:
        """A new name, or several."""
        kind = self.kind()
        name, source = self.fresh("v"), self.expression(kind)
        form = self.below(8)
        if form == 6:
            left, right = self.fresh("v"), self.fresh("v")
            self.bind(left, "int")
            target = self.pick([f"{left}, {right}", f"{left}, *{right}", f"*{right}, {left}", f"[{left}, {right}]"])
            value = self.pick(["(<int>, <any>)", "<ints>", "<str>", "<iter>", "(<int>, <int>, *<ints>)", "<dict>"])
            both = self.pick(["", f"{name} = "])
            return [f"{both}{target} = {self.fill(value)}", f"show(lambda: ({left}, {right}))"]
        self.bind(name, kind)
        if form == 7:
            return [self.pick([f"{name}: int = {source}", f"print(({name} := {self.shown('any')}) is not None)"])]
        return [f"{name} = {source}"]

    def change(self, depth: int) -> list[str]:
        """Change a value in place: augmented assignment, or a call of a method."""
        kinds = [kind for kind in {**AUGMENTED, **MUTATIONS} if self.scope.get(kind)]
        if not kinds:
            return self.assign(depth)
        kind = self.pick(kinds)
        name = self.pick(self.scope[kind])
        if kind in MUTATIONS and (kind not in AUGMENTED or self.chance(2)):
            line = f"{name}.{self.fill(self.pick(MUTATIONS[kind]))}"
        else:
            operators, operands = AUGMENTED[kind]
            line = f"{name} {self.pick(operators.split())} {self.expression(self.pick(operands.split()))}"
        lines = self.guarded([line], everything=self.chance(3))
        return [*lines, f"show(lambda: {f'sorted({name})' if kind in ('set', 'frozenset') else name})"]

    def guarded(self, lines: list[str], everything: bool = False) -> list[str]:
        """The lines, or the name of the exception they raise."""
        if everything:
            return lines
        return ["try:", *indented(lines), "except Exception as e:", "    print(type(e).__name__)"]

    def store(self, depth: int) -> list[str]:
        """Assign to, augment or delete an item or a slice."""
        kinds = [
            kind for kind in ("ints", "dict", "list", "default", "counter", "deque", "tuple") if self.scope.get(kind)
        ]
        if not kinds:
            return self.assign(depth)
        kind = self.pick(kinds)
        name = self.pick(self.scope[kind])
        key = (
            "<str>" if kind in ("dict", "default", "counter") else self.pick(["<small>", "<small>:", ":<small>", "::2"])
        )
        operator = self.pick(["=", "+=", "-=", "*=", "//="]) if ":" not in key else "="
        value = "<int>" if ":" not in key else self.pick(["<ints>", "<range>", "<iter>", "<str>"])
        line = self.fill(self.pick([f"{name}[{key}] {operator} {value}", f"del {name}[{key}]"]))
        return [*self.guarded([line]), f"show(lambda: {name})"]

    def odd(self, depth: int) -> list[str]:
        """A simple statement of another sort."""
        names = [name for kind in sorted(self.scope) for name in self.scope[kind]]
        forms = ["assert <any>, <str>", "<any>", "pass", "raise <error>(<any>)", "raise <error>"]
        if names:
            forms.append(f"del {self.pick(names)}")
        if self.in_loop:
            forms += ["break", "continue"]
        if self.in_function:
            forms += ["return <any>", "return"]
        form = self.fill(self.pick(forms))
        if form.split()[0] in ("break", "continue", "return"):
            return [f"if {self.expression('bool')}:", f"    {form}"]
        return self.guarded([form], everything=self.chance(6))

    def branch(self, depth: int) -> list[str]:
        """``if``, perhaps with ``elif`` and ``else``."""
        lines = [f"if {self.expression(self.pick(['bool', 'any']))}:", *indented(self.block(depth - 1))]
        if self.chance(3):
            lines += [f"elif {self.expression('bool')}:", *indented(self.block(depth - 1, 1))]
        if self.chance(2):
            lines += ["else:", *indented(self.block(depth - 1, 2))]
        return lines

    def loop(self, depth: int) -> list[str]:
        """``for`` or ``while``, of a few turns."""
        name = self.fresh("i")
        if self.chance(3):
            head = [f"{name} = 0", f"while {name} < {1 + self.below(4)}{self.fill(self.pick(['', ' and <any>']))}:"]
            first = [f"    {name} += 1"]
        else:
            kind = self.pick(["range", "ints", "strs", "list", "tuple", "iter", "dict", "str", "pairs"])
            source = self.expression(kind)
            target = self.pick([f"{name}, *_", f"{name}, {name}b"]) if kind == "pairs" and self.chance(2) else name
            head, first = [f"for {target} in itertools.islice({source}, 6):"], []
            if not self.chance(4):
                head = [f"for {target} in {source}:"]
        with self.inner(loop=True):
            self.bind(name, "int")
            body = first + indented(self.block(depth - 1))
        lines = [*head, *body]
        if self.chance(3):
            lines += ["else:", *indented(self.block(depth - 1, 1))]
        return lines

    def attempt(self, depth: int) -> list[str]:
        """``try`` with handlers, ``else`` and ``finally``."""
        lines = ["try:", *indented(self.block(depth - 1))]
        handlers = self.below(3)
        for index in range(handlers):
            last = index == handlers - 1 and self.chance(3)
            kinds = self.fill(self.pick(["<error>", "(<error>, <error>)", "Exception", "<error>"]), 0)
            head = "except:" if last and self.chance(4) else f"except {kinds} as e:"
            body = self.block(depth - 1, 2)
            if head != "except:":
                body.insert(0, "print(type(e).__name__, isinstance(e, LookupError), len(e.args))")
            if self.chance(4):
                body.append(self.pick(["raise", self.fill("raise <error>(<any>) from None")]))
            lines += [head, *indented(body)]
        if handlers and self.chance(3):
            lines += ["else:", *indented(self.block(depth - 1, 1))]
        if not handlers or self.chance(2):
            lines += ["finally:", *indented(self.block(depth - 1, 2))]
        return lines

    def function(self, depth: int) -> list[str]:
        """A function and calls of it."""
        name, first, second = self.fresh("f"), self.fresh("a"), self.fresh("b")
        parameters, calls = self.pick(
            [
                (f"{first}, {second}=<int>", ["<int>", "<int>, <any>", f"<int>, {second}=<int>", "", "<int>, z=1"]),
                (f"{first}, *{second}", ["<int>", "<int>, <any>, <int>", "*<ints>", "<int>, *<str>"]),
                (f"{first}=1, **{second}", ["<int>, x=<any>", "", "y=<int>, x=<any>", f"**{{'{first}': <int>}}"]),
                (f"{first}, /, {second}=2, *, k=<any>", ["<int>", "<int>, <int>, k=<int>", "<int>, j=<int>"]),
                (f"{first}: int, {second}: 'List[int]' = None", ["<int>", "<int>, <any>"]),
            ]
        )
        parameters = self.fill(parameters, 0)
        with self.inner(function=True):
            self.bind(first, "int")
            body = self.block(depth - 1)
            if self.chance(5):
                body.insert(0, self.pick(["global shared", "shared = 1", "nonlocal nothing"]))
                body.append("shared = 5")
            body.append(f"return {self.expression('any')}")
        head = [f"@{self.fill(self.pick(['functools.lru_cache', 'twice', 'functools.wraps(len)']))}"] * self.chance(4)
        lines = [*head, f"def {name}({parameters}):", *indented(body)]
        lines += [f"show(lambda: {name}({self.fill(self.pick(calls))}))" for _ in range(1 + self.below(2))]
        self.bind(name, "function")
        return lines

    def closure(self, depth: int) -> list[str]:
        """A function that counts in its closure, or recurses."""
        name = self.fresh("f")
        if self.chance(2):
            body = self.fill("<int> if n <= 0 else (<any>, " + name + "(n - 1))")
            return [f"def {name}(n):", f"    return {body}", f"show(lambda: {name}({self.below(5)}))"]
        step = self.fill(self.pick(["n += <int>", "n = [n, <any>]", "n *= <int>"]))
        return [
            *("def make():", f"    n = {self.expression('int')}", f"    def {name}(x=<int>):".replace("<int>", "0")),
            *("        nonlocal n", f"        {step}", "        return n, x", f"    return {name}"),
            *(f"{name} = make()", f"show({name})", f"show({name})", f"show(lambda: make()({self.expression('any')}))"),
        ]

    def generator(self, depth: int) -> list[str]:
        """A generator function and ways of driving it."""
        name = self.fresh("g")
        with self.inner(function=True):
            body = []
            for _ in range(1 + self.below(3)):
                form = self.pick(
                    [
                        "yield <any>",
                        "x = yield <int>",
                        "yield from <iter>",
                        "yield from <ints>",
                        "return <any>",
                        "<block>",
                    ]
                )
                if form == "<block>":
                    inner = ["yield <int>", *self.block(depth - 1, 1)]
                    body += ["try:", *indented([self.fill(line) for line in inner[:1]] + inner[1:])]
                    body += self.pick(
                        [
                            ["finally:", "    print('finally')"],
                            ["except GeneratorExit:", "    print('exit')", "    raise"],
                            ["except Exception as e:", "    print(type(e).__name__)", "    yield 9"],
                        ]
                    )
                else:
                    body.append(self.fill(form))
            body.append("yield 0")
        drive = [
            f"list(itertools.islice({name}(), 9))",
            f"[*{name}()]",
            f"len([*{name}()])",
            f"g.send({self.expression('any')})",
            "next(g)",
            "g.throw(ValueError)",
            f"g.throw({self.fill('<error>(<int>)')})",
            "g.close()",
            f"[x for x in {name}() if x]",
            f"tuple(map(str, {name}()))",
            "g.send(None)",
        ]
        lines = [f"def {name}():", *indented(body), f"g = {name}()"]
        lines += [f"show(lambda: {self.pick(drive)})" for _ in range(1 + self.below(4))]
        return lines

    def classes(self, depth: int) -> list[str]:
        """A class, perhaps one derived from it, and uses of its instances."""
        name = self.fresh("C")
        members = [self.pick(METHODS) for _ in range(self.below(6))]
        base = self.pick(["", "", "(Exception)", "(object)"])
        lines = [f"class {name}{base}:", "    n = 0", "    def __init__(self, v=1):", "        self.v = v"]
        lines += [f"        {name}.n += 1", "    def __repr__(self):", f"        return f'{name}({{self.v!r}})'"]
        for member in members:
            lines += indented([line.replace("CLASS", name) for line in self.fill(member).splitlines()])
        used = [name]
        if self.chance(2):
            used.append(name + "d")
            body = self.pick(
                [
                    ["def __init__(self, v, w=2):", "    super().__init__(v)", "    self.w = w"],
                    ["def m(self, x=0):", "    return (super().m(x), 'd')"],
                    ["n = 5", "def extra(self):", "    return self.n"],
                ]
            )
            lines += [f"class {name}d({name}):", *indented(body)]
        lines += [f"o = {self.pick(used)}({self.expression('any')})"]
        self.bind("o", "object")
        for _ in range(1 + self.below(4)):
            use = self.fill(self.pick(USES)).replace("CLASS", self.pick(used))
            lines += [f"show(lambda: {use})"] if "\n" not in use and " = " not in use else self.guarded([use])
        return [*lines, "show(lambda: o)"]


METHODS = _members(r"""
def m(self, x=0):
    return (self.v, x)

def __add__(self, o):
    return CLASS((self.v, <any>))

def __radd__(self, o):
    return ('radd', o)

def __iadd__(self, o):
    self.v = o
    return self

def __eq__(self, o):
    return <any>

def __eq__(self, o):
    return isinstance(o, CLASS) and self.v == o.v
def __hash__(self):
    return <int>

def __lt__(self, o):
    return self.v < o.v

def __lt__(self, o):
    return NotImplemented

def __le__(self, o):
    return True

def __len__(self):
    return <small>

def __getitem__(self, i):
    if i == 3:
        raise IndexError
    return i

def __getitem__(self, i):
    return <list>[i]

def __setitem__(self, i, x):
    print('set', i, x)

def __delitem__(self, i):
    print('del', i)

def __contains__(self, x):
    return <any>

def __iter__(self):
    return iter(<ints>)

def __iter__(self):
    yield <int>
    yield <any>

def __iter__(self):
    return self
def __next__(self):
    self.v = self.v + 1
    if self.v > 5:
        raise StopIteration
    return self.v

def __call__(self, *a, **k):
    return (self.v, a, k)

def __bool__(self):
    return <bool>

def __str__(self):
    return <str>

def __neg__(self):
    return 'neg'

def __abs__(self):
    return <int>

def __int__(self):
    return <int>

def __float__(self):
    return <float>

def __index__(self):
    return <small>

def __round__(self, n=None):
    return ('round', n)

def __mul__(self, o):
    return NotImplemented

def __rmul__(self, o):
    return ('rmul', o)

def __divmod__(self, o):
    return (o, 1)

def __reversed__(self):
    return iter([3, 2])

def __or__(self, o):
    return ('or', o)

def __pow__(self, o):
    return ('pow', o)

def __invert__(self):
    return 'invert'

@property
def p(self):
    return <any>
@p.setter
def p(self, x):
    self.v = x

@property
def q(self):
    return self.nothing

@staticmethod
def s(x=<int>):
    return x

@classmethod
def c(cls, x=3):
    return cls(x)

fn = <function>

names = [x for x in <strs>]

kind = <type>

def f(self, x):
    return [self.n + y for y in <ints>]

@functools.lru_cache
def cached(self, x=1):
    return x

def __sub__(self, o):
    raise <error>(<any>)
""")
"""Members of classes."""
USES = _parts(r"""
    o + <any>; <any> + o; o == <any>; o == CLASS(<int>); o != o; o < CLASS(2); o >= o;
    sorted([CLASS(2), CLASS(1), o]); len(o); o[<small>]; o[1:2]; <int> in o; list(itertools.islice(o, 5));
    [x for x in itertools.islice(o, 5)]; o(<int>, k=2); bool(o); not o; str(o); f'{o}'; f'{o!r:>9}'; -o; abs(o);
    int(o); float(o); [1, 2, 3][o]; range(9)[o]; round(o); round(o, 1); o * 2; 2 * o; divmod(o, 3); list(reversed(o));
    o | 1; o ** 2; ~o; o.p; o.q; o.s(); CLASS.s(3); CLASS.c(); o.c(4); o.fn(<int>); o.names; o.kind; o.f(2); o.m();
    o.m(x=<any>); CLASS.m(o, 1); o.n; CLASS.n; o.cached(); o.extra(); hasattr(o, 'p'); hasattr(o, 'q');
    getattr(o, 'v'); getattr(o, 'zz', <any>); {o: 1}; {o, o} and 1; [o].index(o); [o].count(CLASS(1));
    isinstance(o, CLASS); type(o); type(o).__name__; issubclass(type(o), CLASS); o is o; max(o, CLASS(3));
    max([o, CLASS(3)], key=lambda x: str(x)); sum([o, o]); sum([o], <int>); o.v = <any>; o.p = <any>; o.v += <int>;
    o.n += 1; CLASS.n += 1; del o.v; o[<small>] = <any>; del o[<small>]; o[1:2] = <ints>; o[0] += 1;
    setattr(o, 'v', <any>); '%s' % o; '%d' % o; '%s %r' % (o, o); '{} {!r}'.format(o, o); print(o, [o]);
    dict(zip(o, <ints>)); a, *b = o; list(map(o, <ints>)); list(zip(o, <ints>)); o and <any>; o or <any>;
    1 if o else 2; o < 3 < o; tuple(o); [*o]; json.dumps(o); copy.copy(o); copy.deepcopy([o, o]); next(o);
    next(iter(o), 0); o - 1; bytes(o); <str> * o; hash(o) and 1; callable(o); enumerate(o); list(enumerate(o));
    any(o); min(o); functools.reduce(operator.add, o); '%x' % o; o(); raise o; raise CLASS(3); hex(o); o.args;
    int(o) + 1; complex(o); <list> + o; o += <any>; o *= 2; o |= <any>; <dict>[o]; operator.neg(o); math.floor(o);
    chr(o);
""")
"""What is done with an instance ``o`` of the class ``CLASS``."""
PRELUDE = [
    "def show(f):",
    "    try:",
    "        print([f()])",
    "    except Exception as e:",
    "        print(type(e).__name__)",
    "def twice(f):",
    "    return lambda *a, **k: [f(*a, **k), f(*a, **k)]",
    "shared = 0",
]
"""What every generated program begins with."""


@st.composite
def programs(draw: Draw) -> str:
    """Programs of the accepted subset that end soon and, but for messages, do what Python does."""
    writer = Writer(draw)
    body = writer.block(2, 5)
    text = "\n".join(body)
    return "\n".join([*PRELUDE, *body]) + "\n" if "show(" in text or "twice" in text else text + "\n"


# ------------------------------------------------------------------ hostile programs

HOSTILE_PRELUDE = [
    *("def tree(leaf, n=40):", "    for _ in range(n):", "        leaf = [leaf, leaf]", "    return leaf"),
    *("def twin(leaf, n=40):", "    for _ in range(n):", "        leaf = (leaf, leaf)", "    return leaf"),
    *("def nest(leaf, n=400):", "    for _ in range(n):", "        leaf = [leaf]", "    return leaf"),
    *("def ring(x):", "    x.append(x)", "    return x", "def knot():", "    d = {}", "    d[0] = d", "    return d"),
    *("def endless():", "    while True:", "        yield 0", "M = 2**61 - 1"),
    *("def stuck():", "    try:", "        yield 1", "    finally:", "        while True:", "            yield 2"),
]
BIG = _sections(r"""
int
    1 << 200000; 10**4000; -(1 << 100000); M; (1 << 261000) - 1;
small
    10**6; 10**9; -10**9; 3000; 1 << 70; 2;
float
    1e308; float('nan'); 5e-324;
str
    'a' * 3000000; 'ab ' * 100000; 'é' * 999999; '(' * 5000; '1' * 4000; '%s' * 10000; '{}' * 9999; ' ' * 10**6;
bytes
    b'a' * 3000000; bytes(10**6); b'12' * 2000;
ints
    [0] * 500000; list(range(99999)); [i * M for i in range(900)]; [1 << 99999] * 999; [10**400] * 9999;
floats
    [0.5] * 300000; [1e308, -1e308] * 1000; [float('nan')] * 9999;
strs
    ['a' * 1000] * 10000; ['ab'] * 300000; [str(i) for i in range(9999)]; ['x' * 10**6];
list
    tree(0); nest(0); ring([]); [[0] * 1000] * 1000; ring(ring([])); [twin(0)]; [knot()]; [range(10**9)] * 9999;
tuple
    twin(0); (0,) * 500000; (ring([]),); twin('a' * 999); twin(1 << 9999); (twin(()), 1);
pairs
    [(0, 0)] * 99999; [(i * M, 0) for i in range(900)]; [(twin(0), 1)]; [(0, tree(0))] * 9;
dict
    {i: i for i in range(99999)}; {i * M: 0 for i in range(900)}; {0: twin(0)}; knot(); {'a': 'x' * 10**6};
    {0: tree(0)};
set
    set(range(200000)); {i * M for i in range(900)}; {frozenset(range(99999))}; {(i * M, 0) for i in range(500)};
frozenset
    frozenset(range(99999)); frozenset([i * M for i in range(900)]); frozenset([frozenset(range(9999))]);
range
    range(10**9); range(10**30); range(-10**9, 10**9, 3); range(1 << 62);
counter
    collections.Counter(range(99999)); collections.Counter({0: 10**9}); collections.Counter({'a': 1 << 99999});
deque
    collections.deque(range(99999)); collections.deque([0] * 99999, 10**5); collections.deque([twin(0)]);
default
    collections.defaultdict(list, {i: i for i in range(9999)}); collections.defaultdict(endless);
ordered
    collections.OrderedDict.fromkeys(range(99999)); collections.OrderedDict([(0, twin(0))]);
frac
    fractions.Fraction((1 << 99999) + 1, 3**1000); fractions.Fraction(1, (1 << 200000) - 1);
complex
    complex(1e308, 1e308);
iter
    itertools.count(); itertools.cycle('ab'); itertools.repeat(0); endless(); iter(int, 1); stuck();
    map(abs, endless()); itertools.product(range(99), repeat=5); itertools.permutations(range(30));
    zip(endless(), itertools.count());
function
    lambda x: [x] * 99999; lambda x: 1 / 0; lambda x: Evil(); str; lambda x: tree(x); lambda x: x * 9999; hash;
pattern
    '(a+)+$'; '(a|aa)*b'; '(.*)*x'; 'a' * 9999; '(?:a?){30}a{30}'; '((a*)*)*'; '(' * 90 + ')' * 90; '(.+?)+?y';
spec
    '9' * 9; '>1000000'; '.99999f'; ',.99999f'; '0999999999d'; 'é^9999999';
percent
    '%999999999d'; '%.9999999f'; '%*d'; '%s' * 999; '%99999s' * 99; '%(a)999999s';
braces
    '{:>99999999}'; '{0}' * 9999; '{:{}}'; '{!r:99999}';
type
    Evil; type(Evil()); object;
error
    MemoryError; RecursionError; KeyboardInterrupt; GeneratorExit; SystemExit; StopIteration; Evil;
""")
"""Source of large, deep, endless and self-containing values, by kind; none costs more than a third of the budget."""
EVIL = _members(r"""
def __eq__(self, o):
    return self == o

def __eq__(self, o):
    return [0] * 99999

def __hash__(self):
    return <small>

def __hash__(self):
    return 1 << 99999

def __len__(self):
    return <small>

def __getitem__(self, i):
    return i

def __iter__(self):
    return self
def __next__(self):
    return self

def __iter__(self):
    return endless()

def __repr__(self):
    return repr(self)

def __repr__(self):
    return 'a' * 10**6

def __str__(self):
    return str([self, self])

def __str__(self):
    raise <error>

def __lt__(self, o):
    return random.random() < 0.5

def __add__(self, o):
    return [self] * 9999
def __radd__(self, o):
    return self

def __bool__(self):
    return <any>

def __index__(self):
    return 1 << 99999

def __contains__(self, x):
    return x in self

def __call__(self, *a, **k):
    return self(*a, **k)

def __int__(self):
    return <int>

def __float__(self):
    raise RecursionError

def __round__(self, n=0):
    return tree(0)

def __mul__(self, o):
    return self * o

@property
def v(self):
    return self.v

def __iadd__(self, o):
    while True:
        pass

def __init__(self, *a):
    self.args = <list>

n = <dict>

def __reversed__(self):
    return itertools.count()

def __abs__(self):
    return Evil() + abs(self)

def __setitem__(self, k, x):
    self[x] = k
""")
"""Members of the class ``Evil``."""
SHAPES = _members(r"""
while True:
    <line>

while True:
    try:
        <line>
    except <catch>:
        pass

<line>
<line>

for x in <iter>:
    try:
        <line>
    finally:
        continue

def f(n):
    try:
        <line>
    finally:
        f(n + 1)
f(0)

def f(n=0):
    <line>
    return f(n + 1)
try:
    f()
except <catch>:
    f()

x = [<line> for a in itertools.count() for b in <list>]

def g():
    try:
        yield <any>
    finally:
        while True:
            <line>
keep = g()
next(keep)

x = []
while True:
    x = <wrap>

x = []
while True:
    x = <wrap>
    <line>

raise ValueError(<any>, <any>)

print(<any>)
raise Evil(<any>)

while True:
    print(<any>)

a, *b = <iter>

<damage>
<line>

class B(Evil):
    def m(self):
        return super().m()
<line>

try:
    try:
        <line>
    finally:
        raise <error>
except <catch>:
    while True:
        <line>

sorted(<list>, key=lambda x: <line>)

x = functools.reduce(lambda a, b: <line>, itertools.count())

@functools.lru_cache(None)
def f(n):
    return [n] * 999, f(n + 1)
f(0)
""")
"""Forms of hostile programs: ``<line>`` is an expression to do harm with."""
WRAPS = _parts(r"""
    [x]; (x,); {0: x}; [x, x]; (x, x); slice(x); (lambda: x); functools.partial(len, x); map(abs, x); iter([x]);
    property(x); (y for y in x); collections.deque([x]); frozenset([x]) if x else frozenset(); enumerate(x);
    zip(x, x); x.append; Evil(x); itertools.chain(x, x); {**{1: x}}; [*x, 0]; str(x);
    collections.defaultdict(list, {0: x}); copy.copy([x]); classmethod(x); ValueError(x); itertools.islice(x, 5);
    f'{x}'; reversed([x]); itertools.accumulate(x); filter(None, x); list[int] | type(x);
""")
"""Ways to put a value into another one, again and again."""
DAMAGE = _parts(r"""
    type(object()).leak = 1; string.Template.delimiter = '#'; math.pi = 3; len = print; int.real = 5; random.seed(7);
    del print; setattr(collections.Counter, 'x', 1); Evil.n = Evil; ValueError.args = (); collections.deque.x = 1;
    print = None; json = 5; functools.reduce = 1; type(print).x = 1; type(lambda: 0).x = 1; type(endless()).x = 1;
    setattr(super, 'x', 1); str.upper = 1; string.ascii_letters = ''; property.x = 1; type(math).x = 1;
    fractions.Fraction.numerator = 1; collections.abc = 1;
""")
"""Attempts to change what the next call sees."""


def _hostile_expression(writer: Writer) -> str:
    kind = writer.pick([*ANY, "set", "frozenset", "iter", "iter", "object"])
    if kind == "object":
        use = writer.fill(writer.pick([use for use in USES if not re.search(r" [+*|]?= |^del |^raise ", use)]))
        return use.replace("CLASS", "Evil")
    if writer.chance(5):
        owners = [name for name in MUTATIONS if writer.scope.get(name)]
        if owners:
            owner = writer.pick(owners)
            call = writer.fill(writer.pick(MUTATIONS[owner]))
            return f"{writer.pick(writer.scope[owner])}.{call}"
    return writer.expression(kind, 2)


@st.composite
def hostile_programs(draw: Draw) -> str:
    """Programs that mix large values, endless iterators, evil special methods and handlers that catch everything."""
    writer = Writer(draw, names_first=True)
    for kind in BIG:
        writer.bind(f"big_{kind}", kind)
    writer.bind("o", "object")
    writer.bind("o", "list")
    places: dict[str, Callable[[], str]] = {
        "<line>": lambda: _hostile_expression(writer),
        "<catch>": lambda: writer.pick(["BaseException", "Exception", "(ValueError, TypeError)", "RecursionError"]),
        "<wrap>": lambda: writer.pick(WRAPS),
        "<damage>": lambda: writer.pick(DAMAGE),
    }
    shape = writer.pick(SHAPES).strip("\n")
    shape = re.sub("<(line|catch|wrap|damage)>", lambda place: places[place[0]](), shape)
    shape = writer.fill(shape)
    evil = ["class Evil(Exception):" if writer.chance(4) else "class Evil:", "    n = 0"]
    for _ in range(writer.below(4)):
        evil += indented(writer.fill(writer.pick(EVIL), 0).splitlines())
    used = [kind for kind in BIG if f"big_{kind}" in shape + "\n".join(evil)]
    values = [f"big_{kind} = {writer.pick(BIG[kind])}" for kind in used]
    return "\n".join([*HOSTILE_PRELUDE, *evil, "o = Evil()", *values, shape]) + "\n"


# ------------------------------------------------------------------ text that is hardly a program

_BOMBS = [
    *(
        "(",
        "[",
        "{",
        "-",
        "not ",
        "lambda:",
        "~",
        "*",
        "**",
        "f'{",
        "'a' ",
        "1+",
        "1,",
        "a.",
        "x[",
        "f(",
        "a if b else ",
    ),
    *("a and ", "await ", "yield ", "(x:=", "[x for x in ", "{x:", "()", "del (", "return ", "@a\n", "a=", "0x", "1e"),
    *("\\\n", '"""', "#", ":", ";", "\x00", "\ud800", "\uff3f", "\u00aa", "if 1:\n", "for x in x: ", "global a,"),
    *(
        "import a.",
        "a<b<",
        "x[:",
        "(a,*b)=",
        "print(",
        "f'{f\"{",
        "rb'",
        "async ",
        "\t",
        "\f",
        "\r",
        "\ufeff",
        "try:\n",
    ),
    *("a@", "lambda x=lambda:", "(yield ", "!", "?", "$", "match x:", "type X =", "except ", "1_", "..", "->", ":="),
    *(
        "nonlocal ",
        "with a:",
        "class A: ",
        "def f(): ",
        "elif 1:",
        "else:",
        "x = y = ",
        "assert ",
        "{**",
        "*a, ",
        "f(**",
    ),
]
_CLOSERS = ["", ")", "]", "}", "'", "1", "}'", ":pass", "\n", "a"]
_TOKEN = re.compile(r"\w+|\s+|[^\w\s]+")


def _bomb(piece: str, times: int, closer: str, indent: bool) -> str:
    if indent:
        return "".join(" " * level + "if 1:\n" for level in range(times % 120)) + piece
    return piece * times + "1" + closer * times


def _mutated(program: str, edits: list[tuple[int, int, int]]) -> str:
    """Tokens deleted, doubled, swapped or cut off."""
    tokens = _TOKEN.findall(program)
    for how, first, second in edits:
        if not tokens:
            break
        i, j = first % len(tokens), second % len(tokens)
        if how == 0:
            del tokens[i]
        elif how == 1:
            tokens.insert(j, tokens[i])
        elif how == 2:
            tokens[i], tokens[j] = tokens[j], tokens[i]
        else:
            tokens = tokens[: i + 1]
    return "".join(tokens)


_EDITS = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 999), st.integers(0, 999)), min_size=1, max_size=4)
raw_texts: st.SearchStrategy[str] = st.one_of(
    st.text(max_size=60),
    st.text("()[]{}:,.;'\"\\ \n\tabx01=+-*/%@<>!_#\x00\ud800\u00e9", max_size=60),
    st.builds(_mutated, programs(), _EDITS),
    st.builds(
        _bomb,
        st.sampled_from(_BOMBS),
        st.sampled_from([1, 3, 90, 199, 1000, 6000]),
        st.sampled_from(_CLOSERS),
        st.booleans(),
    ),
)
"""Arbitrary text, programs with a few tokens changed, and one piece of syntax again and again."""
