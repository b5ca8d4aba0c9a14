"""The standard modules that programs may use, but for ``re`` (regex.py): a file for each kind of module.

Each function is either native and of bounded cost, or written here so that it charges for what it does. Whatever
yields without end is a generator that charges for each item. Importing this package fills ``modules.MODULES``.
"""

from __future__ import annotations

from . import abstract as abstract
from . import containers as containers
from . import decimals as decimals
from . import enumeration as enumeration
from . import functions as functions
from . import iteration as iteration
from . import numeric as numeric
from . import records as records
from . import texts as texts
