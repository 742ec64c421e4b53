"""Texts for clients, who must not learn where the server's files are."""
import os
import re

from clrec_tf.stores import names

_ABSOLUTE = re.compile(r"(?<![\w/.:])/(?:[^\s/'\"`,;:()]+/)+")


def without_paths(text: str, export_dir: str) -> str:
    """A text in which the paths of versions begin at `export_dir`, and of other files only the names are left."""
    forms = {form.rstrip("/") for form in (export_dir, os.path.abspath(export_dir), os.path.realpath(export_dir),
                                           names.address_of(export_dir))}
    for form in sorted(forms - {""}, key=len, reverse=True):
        text = re.sub(rf"(?<![\w./-]){re.escape(form)}/+", "", text)
        text = re.sub(rf"(?<![\w./-]){re.escape(form)}(?![\w-])", "--export_dir", text)
    return _ABSOLUTE.sub("", text)
