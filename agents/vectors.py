"""Vectors of eight float32 as values inside compiled functions.

A compiler makes vectors of a loop where it can prove that it may, and as it sees fit: of the products of attention
it made chains of operations that wait for one another (docs/PERFORMANCE.md). With these a function says what lies in
a register. They are LLVM's own vectors, which it has for every processor.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic, models, register_model

LANES = 8

_FLOAT, _INT = ir.FloatType(), ir.IntType(32)
_FLOATS, _INTS = ir.VectorType(_FLOAT, LANES), ir.VectorType(_INT, LANES)
# A product and a sum may be one operation where the processor has it; the sign of a zero is nobody's concern. Nothing
# may be reordered, and NaN stays NaN: a policy that diverged must be noticed. Numba adds what it lets a function's own
# operations do (`kernels._options`) only to those that say nothing themselves, so that these must say something.
_FLAGS = ("contract", "nsz")
_Code = tuple[Any, Callable[..., Any]] | None
_in_code: Callable[[Callable[..., _Code]], Any] = intrinsic


class _Vector(types.Type):
    """Numba's type of a vector."""


_VECTOR = _Vector(name=f"Vector{LANES}")


@register_model(_Vector)
class _Model(models.PrimitiveModel):
    def __init__(self, manager: Any, kind: Any) -> None:
        super().__init__(manager, kind, _FLOATS)  # type: ignore[no-untyped-call]


def _constant(kind: Any, values: Sequence[float]) -> Any:
    return ir.Constant(kind, [ir.Constant(kind.element, value) for value in values])


def _shuffled(builder: Any, vector: Any, places: Sequence[int]) -> Any:
    return builder.shuffle_vector(vector, ir.Constant(_FLOATS, ir.Undefined), _constant(_INTS, places))


def _in_every_lane(builder: Any, value: Any) -> Any:
    first = builder.insert_element(ir.Constant(_FLOATS, ir.Undefined), value, ir.Constant(_INT, 0))
    return _shuffled(builder, first, [0] * LANES)


def _flat(array: Any) -> bool:
    """Whether places of an array of a type are where they are reckoned to be; for another Numba raises TypingError."""
    return isinstance(array, types.Array) and array.dtype == types.float32 and (array.ndim, array.layout) == (1, "C")


def _place(context: Any, builder: Any, kind: Any, array: Any, at: Any) -> Any:
    """Where an element of a flat array is; places are not counted from the end, nor checked."""
    return builder.gep(context.make_array(kind)(context, builder, array).data, [at])


@_in_code
def load(typing: Any, array: Any, at: Any) -> _Code:
    """The eight values of a flat array from a place on."""
    if not _flat(array):
        return None

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        place = _place(context, builder, array, *arguments)
        return builder.load(builder.bitcast(place, _FLOATS.as_pointer()), align=4)

    return _VECTOR(array, types.intp), code


@_in_code
def load_one(typing: Any, array: Any, at: Any) -> _Code:
    """The value at a place of a flat array, in every lane."""
    if not _flat(array):
        return None

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return _in_every_lane(builder, builder.load(_place(context, builder, array, *arguments)))

    return _VECTOR(array, types.intp), code


@_in_code
def store(typing: Any, array: Any, at: Any, vector: Any) -> _Code:
    """Write a vector to a flat array, from a place on."""
    if not _flat(array):
        return None

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        place = _place(context, builder, array, *arguments[:2])
        builder.store(arguments[2], builder.bitcast(place, _FLOATS.as_pointer()), align=4)
        return context.get_dummy_value()

    return types.void(array, types.intp, _VECTOR), code


def _coded(generate: Callable[..., Any]) -> Callable[..., Any]:
    """What Numba asks of an intrinsic, where the code hangs on nothing but a builder and the arguments."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return generate(builder, *arguments)

    return code


@_in_code
def spread(typing: Any, value: Any) -> _Code:
    """A value in every lane."""
    return _VECTOR(types.float32), _coded(_in_every_lane)


@_in_code
def lane_numbers(typing: Any) -> _Code:
    """0 to 7."""
    return _VECTOR(), _coded(lambda builder: _constant(_FLOATS, range(LANES)))


@_in_code
def fma(typing: Any, a: Any, b: Any, c: Any) -> _Code:
    """a b + c."""

    def code(builder: Any, a: Any, b: Any, c: Any) -> Any:
        return builder.fadd(builder.fmul(a, b, flags=_FLAGS), c, flags=_FLAGS)

    return _VECTOR(_VECTOR, _VECTOR, _VECTOR), _coded(code)


@_in_code
def where_below(typing: Any, a: Any, b: Any, then: Any, other: Any) -> _Code:
    """``then`` in the lanes where a < b, ``other`` in the rest, where either is NaN among them."""

    def code(builder: Any, a: Any, b: Any, then: Any, other: Any) -> Any:
        return builder.select(builder.fcmp_ordered("<", a, b), then, other)

    return _VECTOR(_VECTOR, _VECTOR, _VECTOR, _VECTOR), _coded(code)


def _of_two(generate: Callable[[Any, Any, Any], Any]) -> Any:
    """The function of two vectors for which ``generate`` writes the code."""

    @_in_code
    def operation(typing: Any, a: Any, b: Any) -> _Code:
        return _VECTOR(_VECTOR, _VECTOR), _coded(generate)

    return operation


def _of_one(generate: Callable[[Any, Any], Any], kind: Any = _VECTOR) -> Any:
    """The function of a vector for which ``generate`` writes the code; what comes out is of a kind."""

    @_in_code
    def operation(typing: Any, a: Any) -> _Code:
        return kind(_VECTOR), _coded(generate)

    return operation


def _by_halves(generate: Callable[[Any, Any, Any], Any]) -> Any:
    """The function of a vector that makes of its lanes one number, two by two."""

    def code(builder: Any, found: Any) -> Any:
        for step in (4, 2, 1):
            other = _shuffled(builder, found, [lane ^ step for lane in range(LANES)])
            found = generate(builder, found, other)
        return builder.extract_element(found, ir.Constant(_INT, 0))

    return _of_one(code, types.float32)


def _sum(builder: Any, a: Any, b: Any) -> Any:
    return builder.fadd(a, b, flags=_FLAGS)


def _larger(builder: Any, a: Any, b: Any) -> Any:
    return builder.select(builder.fcmp_ordered(">", a, b), a, b)


def _signed(builder: Any, a: Any) -> Any:
    odd = _shuffled(builder, a, [lane | 1 for lane in range(LANES)])
    return builder.fmul(odd, _constant(_FLOATS, [-1.0, 1.0] * (LANES // 2)), flags=_FLAGS)


def _two_to(builder: Any, a: Any) -> Any:
    biased = builder.add(builder.fptosi(a, _INTS), _constant(_INTS, [127] * LANES))
    return builder.bitcast(builder.shl(biased, _constant(_INTS, [23] * LANES)), _FLOATS)


add = _of_two(_sum)
subtract = _of_two(lambda builder, a, b: builder.fsub(a, b, flags=_FLAGS))
multiply = _of_two(lambda builder, a, b: builder.fmul(a, b, flags=_FLAGS))
larger = _of_two(_larger)
"""The larger of each lane; the second's, where either is NaN."""
total, largest = _by_halves(_sum), _by_halves(_larger)
"""The sum of the lanes, and the largest; of NaN it may be any."""
swapped = _of_one(lambda builder, a: _shuffled(builder, a, [lane ^ 1 for lane in range(LANES)]))
"""The two of each pair of lanes exchanged."""
firsts = _of_one(lambda builder, a: _shuffled(builder, a, [lane & ~1 for lane in range(LANES)]))
"""The first of each pair of lanes, twice."""
seconds = _of_one(_signed)
"""The second of each pair of lanes, twice: first with the other sign, then as it is."""
whole = _of_one(lambda builder, a: builder.sitofp(builder.fptosi(a, _INTS), _FLOATS))
"""Cut towards 0: of what an int32 can hold; of anything else it may be any number."""
two_to = _of_one(_two_to)
"""2 to the power of whole numbers from -126 to 127."""
