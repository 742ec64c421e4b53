"""Whether a person watches, for whom a progress bar is drawn."""
import sys


def watched() -> bool:
    """Whether standard error is a terminal or a notebook's cell: these redraw a line."""
    return sys.stderr.isatty() or type(sys.stderr).__module__.startswith("ipykernel.")
