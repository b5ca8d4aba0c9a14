"""The restricted interpreter: Python programs in confined worker processes, each call answered by a ToolResult.

    with InterpreterPool(workers=2) as pool:
        pool.run("print(3 + 4)").output  # "7\\n"

See docs/SANDBOX.md for what is promised and what is not.
"""

from .calls import InterpreterSession, Pending
from .limits import Limits
from .pool import InterpreterPool, PoolStats, shared_pool

__all__ = ["InterpreterPool", "InterpreterSession", "Limits", "Pending", "PoolStats", "shared_pool"]
