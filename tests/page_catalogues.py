"""Catalogues that a page must not be led astray by."""
import dataclasses

import numpy as np

from tests.exported import ITEMS, MULTI, World, world

LARGE = 2**60  # ids of the model with several intents are beyond what JavaScript's numbers hold
HOSTILE = ('<img src=x onerror="window.hacked=1">', "<b>bold</b> & \"quoted\" 'single'",
           "</li></script><script>hacked=1</script>")


def text_id(number: int) -> str:
    """Original id of item `number` ≥ 1: with all that has a meaning in an address, in HTML, or in a shell."""
    return f"ä,{number} +<i>&'%2C"


def text_world(seed: int = 0) -> World:
    """The world of text ids, with hostile ids and titles."""
    base = world("string", seed)
    titles = [HOSTILE[number % 3] + f" {number}" for number in range(ITEMS)]
    ids = [text_id(number) for number in range(1, ITEMS + 1)]
    return dataclasses.replace(base, catalogue=dataclasses.replace(
        base.catalogue, original_ids=np.array(ids, object), titles=np.array(titles, object)))


def multi_world() -> World:
    """Several intents, ids of more than 53 bits, no titles."""
    base = world(MULTI)
    ids = base.catalogue.original_ids + LARGE
    return dataclasses.replace(base, catalogue=dataclasses.replace(base.catalogue, original_ids=ids))
