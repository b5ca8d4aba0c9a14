"""Start of the zygote process: ``python -s -P -B worker.py CONTROL_FD SETTINGS PATH``.

Run by its absolute path, so that neither the package ``tool_gym`` nor anything of the trainer is imported: the
sibling files are loaded as a package of their own. What goes wrong is reported to the pool.
"""

import importlib
import json
import os
import socket
import sys
import traceback
import types


def start() -> None:
    """Load the sandbox and serve the pool at the other end of the control socket."""
    control = socket.socket(fileno=int(sys.argv[1]))
    try:
        # Where the host found RestrictedPython, in case it is on no default path.
        sys.path.append(sys.argv[3])
        package = types.ModuleType("tool_gym_sandbox")
        package.__path__ = [os.path.dirname(os.path.abspath(__file__))]
        sys.modules[package.__name__] = package
        zygote = importlib.import_module("tool_gym_sandbox.zygote")
        zygote.main(control, json.loads(sys.argv[2]))
    except Exception:
        payload = json.dumps({"error": traceback.format_exc(limit=-3)[-2000:]}).encode("ascii")
        control.sendall(len(payload).to_bytes(4, "big") + payload)
        raise


if __name__ == "__main__":
    start()
