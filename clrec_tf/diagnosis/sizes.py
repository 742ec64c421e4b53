"""Numbers of bytes as people read them."""


def shown(number: float) -> str:
    """Such as "1.5 GB"; powers of ten, as disks are sold."""
    for unit, size in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if number >= size:
            return f"{number / size:.1f} {unit}"
    return f"{number:.0f} bytes"
