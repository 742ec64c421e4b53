"""Large pages for what a version keeps in memory, so that scattered reads of it find their addresses sooner.

A search reads single rows out of hundreds of megabytes. With pages of 4 KiB the processor has to look up the address of
almost each of them, which takes as long as the reading; Linux gives pages of 2 MiB to those who ask. It saves ten
percent of a search for four intents among a million items (benchmark --suite=serve).
"""
import contextlib
import ctypes

_ASK, _NOW = 14, 25  # MADV_HUGEPAGE, and since Linux 6.1 MADV_COLLAPSE, which does not leave it to a later time
_LEAST = 8 * 2**20  # bytes of a region for which it is worth it


def use_huge_pages() -> int:
    """Asks for them for all large private regions of this process; bytes asked for, 0 where the system has none."""
    asked = 0
    with contextlib.suppress(OSError, AttributeError):
        advise = ctypes.CDLL(None, use_errno=True).madvise
        advise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
        with open("/proc/self/maps", encoding="ascii", errors="replace") as file:
            regions = [line.split() for line in file]
        for span, permissions, _, _, inode, *_ in regions:
            start, end = (int(place, 16) for place in span.split("-"))
            if permissions == "rw-p" and inode == "0" and end - start >= _LEAST:
                if advise(start, end - start, _ASK) == 0:
                    asked += end - start
                    advise(start, end - start, _NOW)
    return asked
