"""What the operating system takes away from a worker before it runs a program. Linux; elsewhere, what there is.

The interpreter's own rules come first. These layers are for the day on which one of them has a hole: without
files, sockets, processes and signals there is little for an escaped program to reach.
"""

from __future__ import annotations

import ctypes
import os
import platform
import resource
import signal
import struct
import sys

_PR_SET_PDEATHSIG = 1
_PR_SET_DUMPABLE = 4
_PR_SET_SECCOMP = 22
_PR_SET_NO_NEW_PRIVS = 38
_LANDLOCK_CREATE_RULESET = 444
_LANDLOCK_RESTRICT_SELF = 446
_STACK_BYTES = 120 << 20  # the kernel keeps a gap of at least 128 MiB below the stack

# Reading and writing open descriptors, memory, clocks, its own signals and timers, and the end: a worker needs no more.
_SYSCALLS: dict[str, tuple[int, tuple[int, ...]]] = {
    "x86_64": (
        0xC000003E,
        # read write close fstat lseek poll mmap mprotect munmap brk rt_sigaction rt_sigprocmask rt_sigreturn
        # sched_yield mremap madvise setitimer getpid exit getrusage sigaltstack gettid futex restart_syscall
        # clock_gettime exit_group getrandom
        (0, 1, 3, 5, 8, 7, 9, 10, 11, 12, 13, 14, 15, 24, 25, 28, 38, 39, 60, 98, 131, 186, 202, 219, 228, 231, 318),
    ),
    "aarch64": (
        0xC00000B7,
        (
            *(63, 64, 57, 80, 62, 73, 222, 226, 215, 214, 134, 135, 139, 124, 216, 233, 103, 172, 93, 165, 132, 178),
            *(98, 128, 113, 94, 278),
        ),
    ),
}


class _Landlock(ctypes.Structure):
    _fields_ = (("handled_access_fs", ctypes.c_uint64), ("handled_access_net", ctypes.c_uint64))


class _Filter(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))


def _libc() -> ctypes.CDLL | None:
    return ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None


def _prctl(option: int, *arguments: int) -> bool:
    libc = _libc()
    if libc is None:
        return False
    padded = [ctypes.c_ulong(argument) for argument in (*arguments, 0, 0, 0, 0)[:4]]
    return bool(libc.prctl(ctypes.c_int(option), *padded) == 0)


def deepen_stack() -> None:
    """Room for the C recursion of deeply nested values. Before forking; it holds for the children."""
    _, hard = resource.getrlimit(resource.RLIMIT_STACK)
    wanted = _STACK_BYTES if hard == resource.RLIM_INFINITY else min(_STACK_BYTES, hard)
    resource.setrlimit(resource.RLIMIT_STACK, (wanted, hard))


def die_with_parent(parent: int) -> bool:
    """Have the kernel kill this process when its parent ends. Whether it will."""
    done = _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it ended before we asked
        os._exit(0)
    return done


def _address_space() -> int:
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")


def limit_resources(memory_bytes: int) -> bool:
    """Memory, files, core dumps, no new descriptors or processes. Whether the memory limit holds."""
    caps = [(resource.RLIMIT_CORE, 0), (resource.RLIMIT_FSIZE, 0), (resource.RLIMIT_NOFILE, 16)]
    caps.append((resource.RLIMIT_NPROC, 0))  # root is exempt from it: the system call filter is not
    for kind, most in caps:
        _, hard = resource.getrlimit(kind)
        value = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(kind, (value, value))
    if sys.platform != "linux":
        return False
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    value = _address_space() + memory_bytes
    if hard != resource.RLIM_INFINITY:
        value = min(value, hard)
    resource.setrlimit(resource.RLIMIT_AS, (value, value))
    return True


def forbid_files() -> bool:
    """Landlock without a rule: no path can be opened any more. Whether the kernel has it."""
    libc = _libc()
    if libc is None:
        return False
    version = libc.syscall(_LANDLOCK_CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint32(1))
    if version < 1:
        return False
    bits = {1: 13, 2: 14, 3: 15, 4: 15}.get(version, 16)
    rules = _Landlock((1 << bits) - 1, 3 if version >= 4 else 0)
    size = ctypes.c_size_t(16 if version >= 4 else 8)
    descriptor = libc.syscall(_LANDLOCK_CREATE_RULESET, ctypes.byref(rules), size, ctypes.c_uint32(0))
    if descriptor < 0:
        return False
    done = libc.syscall(_LANDLOCK_RESTRICT_SELF, ctypes.c_int(descriptor), ctypes.c_uint32(0)) == 0
    os.close(descriptor)
    return bool(done)


def forbid_syscalls() -> bool:
    """A seccomp filter: every system call that is not listed fails with EPERM. Whether the kernel has it."""
    known = _SYSCALLS.get(platform.machine())
    if known is None or sys.platform != "linux":
        return False
    architecture, allowed = known
    operation = struct.Struct("=HBBI")
    load, equal, at_least, answer = 0x20, 0x15, 0x35, 0x06
    program = [
        operation.pack(load, 0, 0, 4),
        operation.pack(equal, 1, 0, architecture),
        operation.pack(answer, 0, 0, 0x80000000),
        operation.pack(load, 0, 0, 0),
        operation.pack(at_least, 0, 1, 0x40000000),  # the x32 numbers
        operation.pack(answer, 0, 0, 0x80000000),
    ]
    for index, number in enumerate(allowed):
        program.append(operation.pack(equal, len(allowed) - index, 0, number))
    program.append(operation.pack(answer, 0, 0, 0x00050000 | 1))
    program.append(operation.pack(answer, 0, 0, 0x7FFF0000))
    buffer = b"".join(program)
    filters = _Filter(len(program), buffer)
    libc = _libc()
    assert libc is not None
    return bool(libc.prctl(_PR_SET_SECCOMP, ctypes.c_ulong(2), ctypes.byref(filters), 0, 0) == 0)


def confine(memory_bytes: int) -> dict[str, bool]:
    """All layers, from the weakest to the last. Which of them are on."""
    layers = {"memory limit": limit_resources(memory_bytes)}
    _prctl(_PR_SET_DUMPABLE, 0)
    layers["no new privileges"] = _prctl(_PR_SET_NO_NEW_PRIVS, 1)
    layers["landlock"] = layers["no new privileges"] and forbid_files()
    layers["seccomp"] = layers["no new privileges"] and forbid_syscalls()
    return layers
