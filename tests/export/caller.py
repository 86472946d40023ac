"""Calls an exported library in a process of its own, where libcuda.so.1 is the fake one.

    python caller.py LIBRARY FAKE

Reads one JSON list a line, ``[name, argument, ...]``, and answers each with one line.
"""

import ctypes
import json
import sys


class Map(ctypes.Structure):
    """What fake_cuda.c makes of a tensor map."""

    _fields_ = (
        ("address", ctypes.c_uint64),
        ("type", ctypes.c_uint64),
        ("rank", ctypes.c_uint64),
        ("swizzle", ctypes.c_uint64),
        ("promotion", ctypes.c_uint64),
        ("sizes", ctypes.c_uint64 * 3),
        ("strides", ctypes.c_uint64 * 2),
        ("box", ctypes.c_uint64 * 3),
    )


class Launch(ctypes.Structure):
    """What fake_cuda.c remembers."""

    _fields_ = (
        ("name", ctypes.c_char * 96),
        ("symbol", ctypes.c_char * 96),
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared_bytes", ctypes.c_uint),
        ("early", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("arguments", ctypes.c_uint64 * 20),
        ("maps", Map * 2),
        ("workspace", ctypes.c_uint64),
    )


KEPT = 160

SIZES = [ctypes.c_int64] * 3
MATRIX = [ctypes.c_void_p, ctypes.c_int64]
GEMM = [
    ctypes.c_int, ctypes.c_char, ctypes.c_char, *SIZES, ctypes.c_void_p,
    *MATRIX, *MATRIX, ctypes.c_void_p, *MATRIX, ctypes.c_void_p,
]  # fmt: skip
COUNTERS = ("fake_launches", "fake_loads", "fake_unloads", "fake_allocations", "fake_frees")


def scalar(letter, value):
    """Return a number, a real and an imaginary part, in memory; None stays null."""
    if value is None:
        return None
    real = ctypes.c_float if letter in "sScC" else ctypes.c_double
    return (real * 2)(*value)


def plain(it):
    """Return a structure as what JSON has."""
    found = {}
    for name, _ in it._fields_:
        value = getattr(it, name)
        if isinstance(value, bytes):
            value = value.decode()
        elif name == "maps":
            value = [plain(one) for one in value]
        elif hasattr(value, "__len__"):
            value = list(value)
        found[name] = value
    return found


class Caller:
    def __init__(self, library, fake):
        self.fake = ctypes.CDLL(fake)
        self.library = ctypes.CDLL(library)
        self.library.tw_choose.restype = ctypes.c_char_p
        self.library.tw_choose.argtypes = [ctypes.c_char, *GEMM[:6]]
        self.library.tw_strerror.restype = ctypes.c_char_p
        self.library.tw_gemm.argtypes = [ctypes.c_char, *GEMM]
        batched = [ctypes.c_char, *GEMM, *[ctypes.c_int64] * 4]
        self.library.tw_gemm_strided_batched.argtypes = batched
        for letter in "sdcz":
            getattr(self.library, f"tw_{letter}gemm").argtypes = GEMM

    def gemm(self, letter, order, ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc, stream):
        """Call tw_gemm, or tw_sgemm for "tw_sgemm"; answer its status and what was launched."""
        before = self.counter("fake_launches")
        call = self.library.tw_gemm
        kind, first = letter, [letter.encode()]
        if letter.startswith("tw_"):
            call, kind, first = getattr(self.library, letter), letter[3], []
        status = call(
            *first, order, ta.encode(), tb.encode(), m, n, k, scalar(kind, alpha), a, lda,
            b, ldb, scalar(kind, beta), c, ldc, stream,
        )  # fmt: skip
        launches = (Launch * KEPT).in_dll(self.fake, "fake_kept")
        numbers = range(before, self.counter("fake_launches"))
        found = [plain(launches[number % KEPT]) for number in numbers]
        copies = [one for one in found if one["symbol"] == "realign"]
        first, second, *_ = (*found[len(copies) :], None, None)
        return {
            "status": status, "copies": copies, "launch": first, "second": second,
            "launches": found[len(copies) :],
        }  # fmt: skip

    def batch(self, letter, *call):
        """Call tw_gemm_strided_batched; answer its status and the last launches."""
        order, ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc, stream, *steps = call
        before = self.counter("fake_launches")
        status = self.library.tw_gemm_strided_batched(
            letter.encode(), order, ta.encode(), tb.encode(), m, n, k, scalar(letter, alpha),
            a, lda, b, ldb, scalar(letter, beta), c, ldc, stream, *steps,
        )  # fmt: skip
        after = self.counter("fake_launches")
        launches = (Launch * KEPT).in_dll(self.fake, "fake_kept")
        numbers = range(max(before, after - KEPT), after)
        return {"status": status, "launches": [plain(launches[x % KEPT]) for x in numbers]}

    def counter(self, name):
        return ctypes.c_int.in_dll(self.fake, name).value

    def counters(self):
        return {name: self.counter(name) for name in COUNTERS}

    def set(self, name, value):
        if name == "fake_name":
            (ctypes.c_char * 96).in_dll(self.fake, name).value = value.encode()
            return
        kind = ctypes.c_ulonglong if name == "fake_context" else ctypes.c_int
        kind.in_dll(self.fake, name).value = value

    def choose(self, letter, order, ta, tb, m, n, k):
        found = self.library.tw_choose(letter.encode(), order, ta.encode(), tb.encode(), m, n, k)
        return found and found.decode()

    def load(self):
        return self.library.tw_load()

    def unload(self):
        return self.library.tw_unload()

    def strerror(self, status):
        return self.library.tw_strerror(status).decode()


def main():
    caller = Caller(*sys.argv[1:])
    for line in sys.stdin:
        name, *arguments = json.loads(line)
        print(json.dumps(getattr(caller, name)(*arguments)), flush=True)


if __name__ == "__main__":
    main()
