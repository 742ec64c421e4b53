"""Names that a file gives of other files: they stay within its folder."""
import os

_MOST = 1000  # characters


def check_name(name) -> None:
    """`ValueError` unless a name is a relative path that goes straight down, such as "index/base.npy"."""
    if not isinstance(name, str) or not name or len(name) > _MOST or "\0" in name or "\\" in name:
        raise ValueError(f"{str(name)[:100]!r} is no name of a file")
    if name.startswith("/") or any(part in ("", ".", "..") for part in name.split("/")):
        raise ValueError(f"the name {name[:100]!r} leads out of its folder")


def inner_path(folder: str, name: str) -> str:
    """The path of a file in a folder, whatever links there are in it or before it.

    Raises:
      ValueError: the name is none (`check_name`), or a link leads out of the folder.
    """
    check_name(name)
    path, root = os.path.join(folder, name), os.path.realpath(folder)
    if os.path.commonpath([root, os.path.realpath(path)]) != root:
        raise ValueError(f"{name!r} is a link that leads out of {folder}")
    return path
