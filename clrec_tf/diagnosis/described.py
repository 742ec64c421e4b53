"""The small files that describe what is in a store, as local files for those who read folders."""
import contextlib
import os
from typing import Iterator
from typing import Mapping
from typing import Optional

from clrec_tf.errors import DataError
from clrec_tf.errors import UserError
from clrec_tf.stores.door import Door
from clrec_tf.stores.folder import Folder
from clrec_tf.stores.store_errors import StoreError


@contextlib.contextmanager
def described(door: Door, folder: Folder, contents: Mapping[str, Optional[bytes]]) -> Iterator[str]:
    """A local folder while the block runs; errors of those who read it name the store's folder in its place.

    Args:
      door: makes it.
      folder: of the store.
      contents: name of a file in it -> its content, None where it is missing in the store.

    Raises:
      DataError: what the block raises as a `UserError`, but for a `StoreError`.
    """
    with door.scratch() as local:
        for name, content in contents.items():
            if content is not None:
                with open(os.path.join(local, name), "wb") as file:
                    file.write(content)
        try:
            yield local
        except StoreError:
            raise
        except UserError as error:
            raise DataError(str(error).replace(local, str(folder.address))) from error
