"""Records: ``collections.namedtuple``, ``typing.NamedTuple`` and ``dataclasses``.

Named tuples are tuples, and native code would treat them as such without charging. So each operation that could
grow or take long is one of ours here, and the number of fields is capped.
"""

from __future__ import annotations

import dataclasses
import keyword
import sys
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

from ..attributes import READERS, read_attribute
from ..guards import CLASS_BASES, HOOKS, ITEM_GETTERS, Standin, getitem, mul, take_all
from ..meter import ITEMS_PER_STEP_SHIFT, METER
from ..modules import define
from ..values import (
    MAPPINGS,
    GuestMeta,
    check_key,
    class_name,
    fields_text,
    of_program,
    plain,
    register_text,
    special,
    to_hash,
    to_repr,
    to_str,
)

_MOST_FIELDS = 1000
_MISSING = object()


# ------------------------------------------------------------------ arguments to fields


def _listed(names: list[str]) -> str:
    quoted = [f"'{name}'" for name in names]
    if len(quoted) < 3:
        return " and ".join(quoted)
    return ", ".join(quoted[:-1]) + f", and {quoted[-1]}"


class Signature:
    """How the fields of a record are given to its constructor.

    Args:
        function: name of the constructor in messages.
        positional: fields that may be given by position.
        keyword_only: fields that may not.
        optional: fields that need not be given.
    """

    __slots__ = ("_function", "_keyword_only", "_known", "_optional", "_positional")

    def __init__(
        self, function: str, positional: tuple[str, ...], keyword_only: tuple[str, ...], optional: frozenset[str]
    ) -> None:
        self._function = function
        self._positional = positional
        self._keyword_only = keyword_only
        self._optional = optional
        self._known = frozenset(positional + keyword_only)

    def bind(self, arguments: tuple[Any, ...], names: dict[str, Any]) -> dict[str, Any]:
        """Values by field, those not given left out. Raises TypeError as a call of a function does."""
        METER.charge(4 + ((len(arguments) + len(names)) >> 1))
        values = dict(zip(self._positional, arguments, strict=False))
        for name, value in names.items():
            if name not in self._known:
                self._fail(f"got an unexpected keyword argument '{name}'")
            if name in values:
                self._fail(f"got multiple values for argument '{name}'")
            values[name] = value
        if len(arguments) > len(self._positional):
            self._too_many(len(arguments))
        if len(values) < len(self._known):
            for fields, kind in ((self._positional, "positional"), (self._keyword_only, "keyword-only")):
                absent = [name for name in fields if name not in values and name not in self._optional]
                if absent:
                    plural = "s" if len(absent) > 1 else ""
                    self._fail(f"missing {len(absent)} required {kind} argument{plural}: {_listed(absent)}")
        return values

    def _too_many(self, given: int) -> NoReturn:
        most = len(self._positional) + 1
        least = most - sum(name in self._optional for name in self._positional)
        bounds = str(most) if least == most else f"from {least} to {most}"
        self._fail(f"takes {bounds} positional argument{'s' if most > 1 else ''} but {given + 1} were given")

    def _fail(self, message: str) -> NoReturn:
        raise TypeError(f"{self._function}() {message}")


# ------------------------------------------------------------------ named tuples


def plain_tuple(record: Any) -> tuple[Any, ...]:
    """The items of a record, or of a tuple, as a plain tuple."""
    METER.charge(2 + (len(record) >> ITEMS_PER_STEP_SHIFT))
    return tuple(tuple.__iter__(record))


def _compare(name: str) -> Callable[..., Any]:
    hook = HOOKS[f"_{name}_"]

    def method(self: Any, other: Any) -> Any:
        METER.charge(6)
        if not isinstance(other, tuple):
            return NotImplemented
        return hook(plain_tuple(self), plain_tuple(other))

    return method


class Record(tuple[Any, ...], metaclass=GuestMeta):
    """What every named tuple is: a tuple whose operations charge."""

    __slots__ = ()
    __module__ = "collections"
    _fields: tuple[str, ...] = ()
    _signature_: Signature
    _defaults_: dict[str, Any]

    def __new__(cls, *arguments: Any, **names: Any) -> Any:
        values = cls._signature_.bind(arguments, names)
        return tuple.__new__(cls, [values[name] if name in values else cls._defaults_[name] for name in cls._fields])

    @classmethod
    def _make(cls, iterable: Any) -> Any:
        items = take_all(iterable)
        if len(items) != len(cls._fields):
            raise TypeError(f"Expected {len(cls._fields)} arguments, got {len(items)}")
        return tuple.__new__(cls, items)

    def _replace(self, /, **changes: Any) -> Any:
        values = self._asdict()
        unknown = [name for name in changes if name not in values]
        if unknown:
            kind = TypeError if sys.version_info >= (3, 13) else ValueError
            raise kind(f"Got unexpected field names: {to_repr(unknown)}")
        return tuple.__new__(type(self), (values | changes).values())

    def _asdict(self) -> dict[str, Any]:
        return dict(zip(self._fields, plain_tuple(self), strict=True))

    def __repr__(self) -> str:
        return fields_text(self, class_name(type(self)), zip(self._fields, plain_tuple(self), strict=True))

    def __hash__(self) -> int:
        METER.charge(6)
        # Natively: it is found where an equal tuple is. What hash() answers is the same in every process.
        return hash(check_key(plain_tuple(self)))

    __eq__ = _compare("eq")
    __ne__ = _compare("ne")
    __lt__ = _compare("lt")
    __le__ = _compare("le")
    __gt__ = _compare("gt")
    __ge__ = _compare("ge")

    def __iter__(self) -> Iterator[Any]:
        return tuple.__iter__(self)

    def __contains__(self, item: Any) -> bool:
        return bool(HOOKS["_in_"](item, plain_tuple(self)))

    def __getitem__(self, key: Any) -> Any:
        if type(key) is int:
            METER.left -= 1
            return tuple.__getitem__(self, key)
        return getitem(plain_tuple(self), key)

    def __add__(self, other: Any) -> Any:
        if not isinstance(other, tuple):
            return NotImplemented
        return HOOKS["_add_"](plain_tuple(self), plain_tuple(other))

    def __radd__(self, other: Any) -> Any:
        if not isinstance(other, tuple):
            return NotImplemented
        return HOOKS["_add_"](plain_tuple(other), plain_tuple(self))

    def __mul__(self, times: Any) -> Any:
        return mul(plain_tuple(self), plain(times))

    __rmul__ = __mul__

    def count(self, value: Any, /) -> int:
        """How often ``value`` is among the items."""
        return sum(bool(HOOKS["_eq_"](item, value)) for item in plain_tuple(self))

    def index(self, value: Any, /, *bounds: Any) -> int:
        """Where ``value`` is. Raises ValueError if it is nowhere."""
        found: int = read_attribute(plain_tuple(self), "index")(value, *bounds)
        return found


def _field(index: int) -> property:
    def read(self: Any) -> Any:
        return tuple.__getitem__(self, index)

    return property(read)


def make_record(
    name: str, fields: tuple[str, ...], defaults: dict[str, Any] | None = None, module: str = "__main__"
) -> Any:
    """A class of named tuples, with its defaults by field. The program's own is of the module ``__main__``."""
    defaults = defaults or {}
    namespace: dict[str, Any] = {field: _field(index) for index, field in enumerate(fields)}
    namespace |= {
        "__slots__": (),
        "__module__": module,
        "_fields": fields,
        "_defaults_": defaults,
        "_signature_": Signature(f"{name}.__new__", fields, (), frozenset(defaults)),
    }
    return GuestMeta(name, (Record,), namespace)


def _program_record(name: str, fields: tuple[str, ...], defaults: dict[str, Any]) -> Any:
    """A class of named tuples for the program, charged."""
    if len(fields) > _MOST_FIELDS:
        METER.too_big(f"a named tuple of {len(fields)} fields (at most {_MOST_FIELDS})")
    METER.charge(250 + 12 * len(fields))
    return make_record(name, fields, defaults)


def _field_names(names: Any) -> list[str]:
    if type(names) is str:
        METER.charge(len(names) >> 2)
        return names.replace(",", " ").split()
    return [to_str(name) for name in take_all(names)]


def _check_field(name: str, seen: set[str]) -> None:
    """Raises ValueError for what cannot be the name of a field."""
    if not name.isidentifier():
        raise ValueError(f"Type names and field names must be valid identifiers: {to_repr(name)}")
    if keyword.iskeyword(name):
        raise ValueError(f"Type names and field names cannot be a keyword: {to_repr(name)}")
    if name.startswith("_"):
        raise ValueError(f"Field names cannot start with an underscore: {to_repr(name)}")
    if name in seen:
        raise ValueError(f"Encountered duplicate field name: {to_repr(name)}")


def _renamed(names: list[str]) -> list[str]:
    seen: set[str] = set()
    for index, name in enumerate(names):
        if not name.isidentifier() or keyword.iskeyword(name) or name.startswith("_") or name in seen:
            names[index] = f"_{index}"
        seen.add(names[index])
    return names


def namedtuple(
    typename: Any, field_names: Any, *, rename: Any = False, defaults: Any = None, module: Any = None
) -> Any:
    names = _field_names(field_names)
    METER.charge(len(names) + sum(map(len, names)))
    name = to_str(typename)
    METER.check_characters(len(name))
    for text in (name,) if rename else (name, *names):
        if not text.isidentifier() or keyword.iskeyword(text):
            _check_field(text, set())
    if rename:
        names = _renamed(names)
    else:
        seen: set[str] = set()
        for field in names:
            _check_field(field, seen)
            seen.add(field)
    values = [] if defaults is None else take_all(defaults)
    if len(values) > len(names):
        raise TypeError("Got more default values than field names")
    given = dict(zip(names[len(names) - len(values) :], values, strict=True))
    return _program_record(name, tuple(names), given)


class TypedTuple:
    """``typing.NamedTuple``: a base whose annotated names are the fields, or a function of names and types."""

    __slots__ = ()

    def __call__(self, typename: Any, fields: Any = (), /, **names: Any) -> Any:
        return namedtuple(typename, [take_all(field)[0] for field in take_all(fields)] + list(names))


def _typed_base(_: Any, namespace: dict[str, Any]) -> type:
    """The record that a class derived from ``typing.NamedTuple`` is; takes the defaults out of its namespace."""
    fields = tuple(name for name, _ in namespace.get("_annotated_", ()))
    defaults: dict[str, Any] = {}
    for field in fields:
        _check_field(field, set())
        if field in namespace:
            defaults[field] = namespace.pop(field)
        elif defaults:
            raise TypeError(f"Non-default namedtuple field {field} cannot follow default field{_names(defaults)}")
    namespace["__slots__"] = ()
    record: type = _program_record(namespace["__qualname__"].rpartition(".")[2], fields, defaults)
    return record


def _names(defaults: dict[str, Any]) -> str:
    return f"{'s' if len(defaults) > 1 else ''} {', '.join(defaults)}"


CLASS_BASES[TypedTuple] = _typed_base
TYPED_TUPLE = TypedTuple()
register_text(TypedTuple, lambda _: "<function NamedTuple>")


# ------------------------------------------------------------------ dataclasses


class Field:
    """A field of a dataclass, as ``dataclasses.field`` and ``fields`` give it."""

    __slots__ = ("compare", "default", "default_factory", "hash", "init", "kind", "kw_only", "metadata", "name", "repr")

    def __init__(
        self,
        *,
        default: Any = _MISSING,
        default_factory: Any = _MISSING,
        init: Any = True,
        repr: Any = True,
        hash: Any = None,
        compare: Any = True,
        metadata: Any = None,
        kw_only: Any = _MISSING,
    ) -> None:
        if default is not _MISSING and default_factory is not _MISSING:
            raise ValueError("cannot specify both default and default_factory")
        self.name = ""
        self.kind = ""
        self.default: Any = MISSING if default is _MISSING else default
        self.default_factory: Any = MISSING if default_factory is _MISSING else default_factory
        self.init, self.repr, self.compare = bool(init), bool(repr), bool(compare)
        self.hash = None if hash is None else bool(hash)
        self.metadata = metadata
        self.kw_only = kw_only

    def named(self, name: str, kind: str, kw_only: bool) -> Field:
        """The field of this description that a class has under ``name``."""
        field = Field(init=self.init, repr=self.repr, hash=self.hash, compare=self.compare, metadata=self.metadata)
        field.default, field.default_factory = self.default, self.default_factory
        field.name, field.kind = name, kind
        field.kw_only = kw_only if self.kw_only is _MISSING else bool(self.kw_only)
        return field

    @property
    def optional(self) -> bool:
        """Whether the constructor can do without it."""
        return self.default is not MISSING or self.default_factory is not MISSING


class _Missing:
    """``dataclasses.MISSING``"""

    __slots__ = ()


MISSING = _Missing()
register_text(_Missing, lambda _: "<dataclasses._MISSING_TYPE object>")
_FIELD_ATTRIBUTES: frozenset[str] = frozenset(
    {"compare", "default", "default_factory", "hash", "init", "kw_only", "name", "repr"}
)


def _describe(**options: Any) -> Field:
    METER.charge(5)
    return Field(**options)


def _field_attribute(field: Field, name: str) -> Any:
    if name in _FIELD_ATTRIBUTES:
        return getattr(field, name)
    if name == "metadata":
        return {} if field.metadata is None else field.metadata
    if name == "type":
        METER.refuse("the attribute 'type' of fields (annotations are not evaluated)")
    raise AttributeError(f"'Field' object has no attribute '{name}'")


class _Marker:
    """``InitVar`` and ``KW_ONLY``: the compiler has seen them among the annotations; here they only have a name."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name


ITEM_GETTERS[_Marker] = lambda marker, _: marker
register_text(_Marker, lambda marker: f"dataclasses.{marker.name}")
READERS[Field] = _field_attribute
register_text(Field, lambda field: f"Field(name={to_repr(field.name)})")


class _Shape:
    """What a dataclass is made of."""

    __slots__ = ("fields", "frozen", "signature")

    def __init__(self, fields: dict[str, Field], frozen: bool, function: str) -> None:
        self.fields = fields
        self.frozen = frozen
        taken = [field for field in fields.values() if field.init]
        self.signature = Signature(
            function,
            tuple(field.name for field in taken if not field.kw_only),
            tuple(field.name for field in taken if field.kw_only),
            frozenset(field.name for field in taken if field.optional),
        )

    def stored(self) -> list[Field]:
        """The fields that instances have."""
        return [field for field in self.fields.values() if not field.kind]


_SHAPE = "_shape_"


def _shape_of(kind: Any) -> _Shape | None:
    """What a class or the class of an instance is made of; None if it is no dataclass."""
    found = getattr(kind, _SHAPE, None) if type(kind) is GuestMeta else None
    return found if type(found) is _Shape else None


def _shape(value: Any, function: str) -> _Shape:
    shape = _shape_of(type(value))
    if shape is None:
        raise TypeError(f"{function}() should be called on dataclass instances")
    return shape


def _class_default(kind: Any, name: str) -> Any:
    for base in kind.__mro__:
        if type(base) is GuestMeta and name in base.__dict__:
            return base.__dict__[name]
    return MISSING


def _own_field(kind: Any, name: str, form: str, kw_only: bool) -> Field:
    """The field that an annotated name of a class body is. Raises ValueError for a mutable default."""
    default = _class_default(kind, name)
    described = type(default) is Field
    field = (default if described else Field(default=default)).named(name, form, kw_only)
    if field.default is not MISSING and getattr(type(field.default), "__hash__", None) is None:
        shown = class_name(type(field.default))
        raise ValueError(f"mutable default <class '{shown}'> for field {name} is not allowed: use default_factory")
    if described and field.default is MISSING:
        type.__delattr__(kind, name)
    elif described:
        type.__setattr__(kind, name, field.default)
    return field


def _collect(kind: Any, kw_only: bool, frozen: bool) -> dict[str, Field]:
    """The fields of a class: those of its bases, then its own."""
    fields: dict[str, Field] = {}
    for base in reversed(kind.__mro__[1:]):
        shape = _shape_of(base) if _SHAPE in base.__dict__ else None
        if shape is None:
            continue
        if shape.frozen is not frozen:
            wrong = (
                "non-frozen dataclass from a frozen one" if shape.frozen else "frozen dataclass from a non-frozen one"
            )
            raise TypeError(f"cannot inherit {wrong}")
        fields |= shape.fields
    annotated = kind.__dict__.get("_annotated_", ())
    for name, form in annotated:
        if form == "KW_ONLY":
            kw_only = True
        else:
            fields[name] = _own_field(kind, name, form, kw_only)
    for name, member in kind.__dict__.items():
        if type(member) is Field and name not in fields:
            raise TypeError(f"'{name}' is a field but has no type annotation")
    _check_order(fields)
    return fields


def _check_order(fields: dict[str, Field]) -> None:
    """Raises TypeError for a required field after an optional one."""
    last = ""
    for field in fields.values():
        if not field.init or field.kw_only:
            continue
        if field.optional:
            last = field.name
        elif last:
            which = f" '{last}'" if sys.version_info >= (3, 13) else ""
            raise TypeError(f"non-default argument '{field.name}' follows default argument{which}")


def _make_init(kind: Any, shape: _Shape) -> Callable[..., None]:
    def __init__(self: Any, *arguments: Any, **names: Any) -> None:
        given = shape.signature.bind(arguments, names)
        late = []
        for field in shape.fields.values():
            METER.left -= 1
            if field.name in given:
                value = given[field.name]
            elif field.default_factory is not MISSING:
                value = field.default_factory()
            elif field.default is not MISSING:
                value = field.default
            else:
                continue
            if field.kind:
                late.append(value)
            else:
                object.__setattr__(self, field.name, value)
        METER.charge(1)
        after = special(self, "__post_init__")
        if after is not None:
            after(self, *late)

    return __init__


def _values(value: Any, fields: list[Field]) -> tuple[Any, ...]:
    METER.charge(2 + 4 * len(fields))
    return tuple(read_attribute(value, field.name) for field in fields)


def _make_repr(fields: list[Field]) -> Callable[..., str]:
    def __repr__(self: Any) -> str:
        name = type.__getattribute__(type(self), "__qualname__")
        return fields_text(self, name, ((field.name, read_attribute(self, field.name)) for field in fields))

    return __repr__


def _make_comparison(name: str, fields: list[Field]) -> Callable[..., Any]:
    hook = HOOKS[f"_{name}_"]

    def method(self: Any, other: Any) -> Any:
        METER.charge(1)
        if type(other) is not type(self):
            return NotImplemented
        return hook(_values(self, fields), _values(other, fields))

    return method


def _make_hash(fields: list[Field]) -> Callable[..., int]:
    def __hash__(self: Any) -> int:
        return to_hash(_values(self, fields))

    return __hash__


def _frozen(verb: str) -> Callable[..., None]:
    def method(self: Any, name: str, *value: Any) -> None:
        raise dataclasses.FrozenInstanceError(f"cannot {verb} field {to_repr(name)}")

    return method


def _install(kind: Any, name: str, function: Callable[..., Any]) -> bool:
    """Give a class a method unless it has one of its own; whether it had."""
    if name in kind.__dict__:
        return True
    function.__name__ = name
    type.__setattr__(kind, name, function)
    return False


def _install_hash(kind: Any, fields: list[Field], eq: bool, frozen: bool, unsafe: bool) -> None:
    """``__hash__`` by the table of the documentation of ``dataclasses``."""
    # A class that defines __eq__ alone has __hash__ = None: that does not count as its own.
    own = "__hash__" in kind.__dict__ and not (kind.__dict__["__hash__"] is None and "__eq__" in kind.__dict__)
    if unsafe and own:
        raise TypeError(f"Cannot overwrite attribute __hash__ in class {class_name(kind)}")
    if unsafe or (eq and frozen and not own):
        hashed = [field for field in fields if (field.compare if field.hash is None else field.hash)]
        type.__setattr__(kind, "__hash__", _make_hash(hashed))
    elif eq and not own:
        type.__setattr__(kind, "__hash__", None)


def _process(
    kind: Any, *, init: Any, repr: Any, eq: Any, order: Any, unsafe_hash: Any, frozen: Any, kw_only: Any
) -> Any:
    """Make a class of the program a dataclass. Raises TypeError and ValueError as Python does."""
    if not of_program(kind):
        raise TypeError("dataclass() should be applied to a class that the program defines")
    METER.charge(100 + 20 * len(kind.__dict__.get("_annotated_", ())) + 4 * len(kind.__dict__))
    if order and not eq:
        raise ValueError("eq must be true if order is true")
    fields = _collect(kind, bool(kw_only), bool(frozen))
    shape = _Shape(fields, bool(frozen), f"{type.__getattribute__(kind, '__qualname__')}.__init__")
    type.__setattr__(kind, _SHAPE, shape)
    stored = shape.stored()
    compared = [field for field in stored if field.compare]
    if init:
        _install(kind, "__init__", _make_init(kind, shape))
    if repr:
        _install(kind, "__repr__", _make_repr([field for field in stored if field.repr]))
    if eq:
        _install(kind, "__eq__", _make_comparison("eq", compared))
    if order:
        for name in ("lt", "le", "gt", "ge"):
            if _install(kind, f"__{name}__", _make_comparison(name, compared)):
                end = "" if sys.version_info >= (3, 13) else "."
                raise TypeError(
                    f"Cannot overwrite attribute __{name}__ in class {class_name(kind)}{end} "
                    "Consider using functools.total_ordering"
                )
    if frozen:
        _install(kind, "__setattr__", _frozen("assign to"))
        _install(kind, "__delattr__", _frozen("delete"))
    _install_hash(kind, stored, bool(eq), bool(frozen), bool(unsafe_hash))
    return kind


def _dataclass(
    cls: Any = None,
    /,
    *,
    init: Any = True,
    repr: Any = True,
    eq: Any = True,
    order: Any = False,
    unsafe_hash: Any = False,
    frozen: Any = False,
    match_args: Any = True,
    kw_only: Any = False,
    slots: Any = False,
    weakref_slot: Any = False,
) -> Any:
    def decorate(kind: Any) -> Any:
        return _process(
            kind, init=init, repr=repr, eq=eq, order=order, unsafe_hash=unsafe_hash, frozen=frozen, kw_only=kw_only
        )

    return decorate if cls is None else decorate(cls)


def _fields(class_or_instance: Any) -> tuple[Field, ...]:
    shape = _shape_of(class_or_instance) or _shape_of(type(class_or_instance))
    if shape is None:
        raise TypeError("must be called with a dataclass type or instance")
    METER.charge(len(shape.fields))
    return tuple(shape.stored())


def _is_dataclass(obj: Any) -> bool:
    METER.charge(1)
    return (_shape_of(obj) or _shape_of(type(obj))) is not None


def _replace(obj: Any, /, **changes: Any) -> Any:
    shape = _shape(obj, "replace")
    for field in shape.fields.values():
        METER.charge(1)
        if not field.init:
            if field.name in changes:
                raise ValueError(
                    f"field {field.name} is declared with init=False, it cannot be specified with replace()"
                )
        elif field.kind and field.name not in changes and not field.optional:
            raise ValueError(f"InitVar '{field.name}' must be specified with replace()")
        elif not field.kind and field.name not in changes:
            changes[field.name] = read_attribute(obj, field.name)
    return type(obj)(**changes)


def _converted(value: Any, record: Callable[[list[tuple[str, Any]]], Any]) -> Any:
    """A copy of ``value`` with the dataclasses in it, at any depth, converted by ``record``."""
    METER.charge(6)
    kind = type(value)
    shape = _shape_of(kind)
    if shape is not None:
        METER.charge(4 * len(shape.fields))
        return record([(field.name, _converted(read_attribute(value, field.name), record)) for field in shape.stored()])
    if isinstance(value, Record):
        return tuple.__new__(kind, [_converted(item, record) for item in plain_tuple(value)])
    if kind is list or kind is tuple:
        METER.check_items(len(value))
        return kind([_converted(item, record) for item in list(value)])
    if kind in MAPPINGS:
        METER.check_items(len(value))
        pairs = [(_converted(key, record), _converted(item, record)) for key, item in list(value.items())]
        return read_attribute(value, "copy")() if not pairs else _filled(value, pairs)
    from .functions import deepcopy

    return deepcopy(value)


def _filled(mapping: Any, pairs: list[tuple[Any, Any]]) -> Any:
    """A mapping of the kind of ``mapping`` that holds ``pairs``."""
    twin = read_attribute(mapping, "copy")()
    twin.clear()
    for key, item in pairs:
        check_key(key)
        twin[key] = item
    return twin


def _asdict(obj: Any, *, dict_factory: Any = None) -> Any:
    _shape(obj, "asdict")
    return _converted(obj, dict if dict_factory is None else dict_factory)


def _astuple(obj: Any, *, tuple_factory: Any = None) -> Any:
    _shape(obj, "astuple")

    def record(pairs: list[tuple[str, Any]]) -> Any:
        values = [value for _, value in pairs]
        return tuple(values) if tuple_factory is None else tuple_factory(values)

    return _converted(obj, record)


define(
    "dataclasses",
    {
        "Field": Standin(Field, Field, name="Field"),
        "FrozenInstanceError": dataclasses.FrozenInstanceError,
        "InitVar": _Marker("InitVar"),
        "KW_ONLY": _Marker("KW_ONLY"),
        "MISSING": MISSING,
        "asdict": _asdict,
        "astuple": _astuple,
        "dataclass": _dataclass,
        "field": _describe,
        "fields": _fields,
        "is_dataclass": _is_dataclass,
        "replace": _replace,
    },
    in_scope=False,
)
