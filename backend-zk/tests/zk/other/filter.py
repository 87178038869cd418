"""Runs a command under a filter of system calls that kills the process for `pidfd_getfd`."""

import ctypes
import os
import struct
import sys

PIDFD_GETFD = 438  # on all architectures but alpha
PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS, SECCOMP_MODE_FILTER = 22, 38, 2
LOAD, IF_EQUAL, RETURN = 0x20, 0x15, 0x06
KILL_PROCESS, ALLOW = 0x80000000, 0x7FFF0000


class Program(ctypes.Structure):
    _fields_ = [("len", ctypes.c_ushort), ("filter", ctypes.c_void_p)]


steps = [
    (LOAD, 0, 0, 0),  # the number of the call
    (IF_EQUAL, 0, 1, PIDFD_GETFD),
    (RETURN, 0, 0, KILL_PROCESS),
    (RETURN, 0, 0, ALLOW),
]
code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))
program = Program(len(steps), ctypes.addressof(code))
libc = ctypes.CDLL(None, use_errno=True)
for call in [(PR_SET_NO_NEW_PRIVS, 1, 0), (PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.addressof(program))]:
    if libc.prctl(*map(ctypes.c_ulong, call), ctypes.c_ulong(0), ctypes.c_ulong(0)) != 0:
        sys.exit(f"prctl{call}: {os.strerror(ctypes.get_errno())}")
os.execv(sys.argv[1], sys.argv[1:])
