"""One held-out user as a person would look at it: what was clicked before, what is retrieved, what was clicked next."""
import numpy as np

from clrec_tf.config import Config
from clrec_tf.data.catalogue import read_catalogue
from clrec_tf.data.held_out_examples import read_evaluation_set
from clrec_tf.data import schema as schema_lib
from clrec_tf.retrieval.bundle import load_bundle
from clrec_tf.retrieval.export_folder import export_dir_of
from clrec_tf.retrieval.query_values import QueryValues
from clrec_tf.retrieval.retriever import Retriever
from clrec_tf.retrieval.search_options import SearchOptions
from clrec_tf.retrieval.user_requests import UserRequest

SHOWN_HISTORY = 10


def show(config: Config) -> str:
    """Retrieves for a random user of --eval_split from the exported bundle; prints and returns the text."""
    data_dir = config.paths.data_dir
    schema, manifest = schema_lib.load_schema(data_dir), schema_lib.load_manifest(data_dir)
    catalogue = read_catalogue(data_dir, schema, manifest)
    user = read_evaluation_set(data_dir, config.evaluate.eval_split, schema, manifest, 1, config.paths.seed)
    bundle = load_bundle(export_dir_of(config.paths))
    history = [catalogue.original_ids[i - 1] for i in user.history_ids if 0 < i <= schema.num_items]
    known = (user.history_ids > 0) & (user.history_ids <= schema.num_items)
    times = None if user.history_times is None else user.history_times[known].tolist()
    request_time = None if user.request_times is None else int(user.request_times[0])
    dwell = None if user.history_dwell is None else user.history_dwell[known].tolist()
    request = UserRequest(int(user.user_ids[0]), [_plain(i) for i in history], times, request_time, dwell,
                          events=_events(user, known, bundle.query), query=_features(user, bundle.query))
    settings = config.retrieve
    retriever = Retriever(bundle, SearchOptions(
        settings.k, config.evaluate.filter_seen, settings.intents, settings.merge, popularity=_one(config)))
    retrieved = retriever([request])[0][0]
    titles = dict(zip(map(_plain, catalogue.original_ids), catalogue.titles if catalogue.titles is not None else []))
    next_item = int(user.next_clicks[0])
    target = _plain(catalogue.original_ids[next_item - 1]) if 0 < next_item <= schema.num_items else None
    lines = [f"history of user {request.user_id}, latest {min(SHOWN_HISTORY, len(history))} of {len(history)} clicks:"]
    lines += [f"    {_named(item, titles)}" for item in request.history[-SHOWN_HISTORY:]]
    lines += [f"clicked next: {_named(target, titles) if target is not None else 'an item outside the vocabulary'}"]
    if retrieved.weights is not None:
        weights = ", ".join(f"{intent} ({weight:.3f})" for intent, weight in retrieved.weights.items())
        lines += [f"intents searched, with their weights: {weights}"]
    lines += [f"retrieved, top {settings.k}, at popularity {retriever.defaults.popularity:g}:"]
    brought = [""] * len(retrieved.ids) if retrieved.intents is None else [
        f"intent {intent:<4d}" for intent in retrieved.intents]
    lines += [f"    {score:.3f}  {intent}{_named(item, titles)}{'   <- clicked next' if item == target else ''}"
              for item, score, intent in zip(retrieved.ids, retrieved.scores, brought)]
    lines += [] if retrieved.ids else ["    nothing: the history holds every item"]
    text = "\n".join(lines)
    print(text)
    return text


def _events(user, known, values: QueryValues):
    """Behaviours of the known clicks, where the model reads them."""
    return [("", *values.events)[number] for number in user.history_events[known]] if values.events else None


def _features(user, values: QueryValues):
    """What is known of the user and the request, where the model reads it."""
    return {name: value[0].tolist() if isinstance(value[0], (np.ndarray, np.generic)) else value[0]
            for name, value in values.example_of(user.query).items()} if values.features else None


def _one(config):
    """The popularity asked for; of a curve's several values the bundle's default is shown."""
    values = config.dial.values or ()
    return values[0] if len(values) == 1 else None


def _plain(original_id):
    return int(original_id) if isinstance(original_id, np.integer) else str(original_id)


def _named(item, titles):
    return f"{item}  {titles[item]}" if titles.get(item) else str(item)
