"""Large pages: asked for where there is much, harmless where there is not."""
import mmap
import re

import numpy as np
import pytest

from clrec_tf.server.huge_pages import use_huge_pages


def huge_bytes(address):
    """Bytes in large pages of the region at an address, as Linux counts them."""
    with open("/proc/self/smaps", encoding="ascii", errors="replace") as file:
        inside = False
        for line in file:
            region = re.match(r"([0-9a-f]+)-([0-9a-f]+) ", line)
            if region:
                inside = int(region[1], 16) <= address < int(region[2], 16)
            elif inside and line.startswith("AnonHugePages:"):
                return 1024 * int(line.split()[1])
    return 0


def test_large_regions_are_in_large_pages_and_hold_what_they_held():
    with open("/sys/kernel/mm/transparent_hugepage/enabled", encoding="ascii") as file:
        if "[madvise]" not in file.read():
            pytest.skip("this system gives large pages to everybody, or to nobody")
    # Not NumPy's own memory, for which NumPy asks by itself.
    region = mmap.mmap(-1, 2**26, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    values = np.frombuffer(region, np.float32)
    values[:] = np.arange(len(values), dtype=np.float32)
    middle = values.ctypes.data + values.nbytes // 2
    assert huge_bytes(middle) == 0
    assert use_huge_pages() >= values.nbytes
    assert huge_bytes(middle) > values.nbytes / 2
    np.testing.assert_array_equal(values, np.arange(len(values), dtype=np.float32))
