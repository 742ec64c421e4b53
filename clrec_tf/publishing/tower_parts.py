"""What the SavedModel of a query tower is made of."""
import contextlib
import dataclasses
import os
import tempfile
from typing import Any

from clrec_tf.publishing.candidates import Candidates
from clrec_tf.retrieval.query_values import QueryValues


@dataclasses.dataclass(frozen=True)
class TowerParts:
    """What a tower is made of.

    Attributes:
      model: a `CLRec` or of its interface; what its query tower reads is shared, not copied.
      candidates: the encoded catalogue.
      id_type: "int" or "string", of original ids.
      max_history: T, most recent known clicks used.
      checkpoint_hash: of the checkpoint the model was restored from; stays readable in the loaded model.
      popularity_range: least and largest α that may be asked for.
      query: what the model reads beside clicked items and times.
    """
    model: Any
    candidates: Candidates
    id_type: str
    max_history: int
    checkpoint_hash: str
    popularity_range: tuple[float, float]
    query: QueryValues = QueryValues()

    @contextlib.contextmanager
    def ids_file(self):
        """Yields the name of a text file with one original id per line, in the candidates' order."""
        with tempfile.TemporaryDirectory() as scratch:
            path = os.path.join(scratch, "item_ids.txt")
            with open(path, "w", encoding="utf-8", newline="\n") as file:
                file.writelines(f"{item}\n" for item in self.candidates.original_ids)
            yield path
