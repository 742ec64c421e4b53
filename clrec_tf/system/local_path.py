"""Paths that a user gives: `~` is a home folder, and what is not on a file system of this machine is refused.

Addresses of stores that a command takes became local paths before (``stores/door``).
"""
import os
import re

from clrec_tf.errors import UserError

# Two letters at least, as Windows has drives of one. Object stores are also written with one slash, as in dbfs:/data.
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")


def local_path(value: str, flag: str) -> str:
    """The path with `~` and `~user` expanded.

    Args:
      value: as given; empty, or a word such as "best" where the flag takes one, comes back as it is.
      flag: named in errors.

    Raises:
      UserError: an address such as gs://bucket/data, which would become a folder "gs:" here; or a user unknown here.
    """
    value = os.fspath(value)
    scheme = _SCHEME.match(value)
    if scheme:
        if scheme[0] == "file:/":
            raise UserError(f"--{flag}={value}: give the path alone, /{value[len(scheme[0]):].lstrip('/')}")
        raise UserError(
            f"--{flag}={value}: this is read and written on file systems of this machine only, and {scheme[0]}… is "
            "none (--help names the flags that take addresses of stores): copy the data here first and upload results "
            "afterwards (of an export saved_model.pb last), or mount the store as a folder")
    expanded = os.path.expanduser(value)
    if expanded.startswith("~") and not os.path.lexists(expanded.split("/")[0]):
        raise UserError(f"--{flag}={value}: no user of this machine is called {expanded.split('/')[0][1:]!r}; give the "
                        f"whole path, or ./{value} if the folder is called so")
    return expanded
