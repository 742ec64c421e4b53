"""Tables of text on standard output."""
import numpy as np


def print_table(header, rows, names):
    """Columns as wide as their widest entry; the first `names` of them to the left, numbers to the right."""
    widths = [max(map(len, column)) for column in zip(header, *rows)]
    print()
    for row in (header, *rows):
        print("  ".join(entry.ljust(width) if place < names else entry.rjust(width)
                        for place, (entry, width) in enumerate(zip(row, widths))))


def decimals(value: float, digits: int = 3) -> str:
    """Fixed decimals, and no "-0.000"."""
    return f"{np.round(value, digits) + 0.0:.{digits}f}"


def spread(values: list, digits: int) -> str:
    """The mean, and in brackets the least and the largest where there are several."""
    if not values:
        return ""
    between = f" ({decimals(min(values), digits)}–{decimals(max(values), digits)})" if len(values) > 1 else ""
    return decimals(np.mean(values), digits) + between
