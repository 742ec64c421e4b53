"""The command that retrieves items for users from an export bundle."""
import contextlib
import json
import os
import sys
from typing import Iterator

from absl import logging
import tqdm

from clrec_tf import command_line
from clrec_tf.config import Config
from clrec_tf.config import require
from clrec_tf.errors import UserError
from clrec_tf.retrieval.bulk import batches
from clrec_tf.retrieval.bulk import results_writer
from clrec_tf.retrieval.bulk import write_embeddings
from clrec_tf.retrieval.bundle import Bundle
from clrec_tf.retrieval.bundle import load_bundle
from clrec_tf.retrieval.export_folder import checked_export_dir
from clrec_tf.retrieval.export_folder import export_dir_of
from clrec_tf.retrieval.retriever import Retriever
from clrec_tf.retrieval.search_options import SearchOptions
from clrec_tf.retrieval.search_vectors import concatenated
from clrec_tf.retrieval.similar_items import similar_items
from clrec_tf.retrieval.stored_versions import reads_bundle
from clrec_tf.retrieval.stored_versions import reads_bundle_of_run
from clrec_tf.retrieval.user_requests import parse_item
from clrec_tf.retrieval.user_requests import read_json_lines
from clrec_tf.retrieval.user_requests import read_parquet
from clrec_tf.retrieval.user_requests import UserRequest
from clrec_tf.retrieval.vectors_file import write_vectors
from clrec_tf.settings.serving import RetrieveConfig
from clrec_tf.stores.files import reads_files
from clrec_tf.stores.files import writes_file
from clrec_tf.system import atomic
from clrec_tf.system.watched import watched

USAGE = """python -m clrec_tf.retrieve: retrieves items for users from a bundle: one JSON line per user.

  python -m clrec_tf.retrieve --export_dir=DIR --history=a,b,c --k=10
  python -m clrec_tf.retrieve --export_dir=DIR < users.jsonl    lines ["a","b"] or {"user_id": 7, "history": ["a","b"]}
  python -m clrec_tf.retrieve --export_dir=DIR --users=users.parquet --output=items.parquet --embeddings=vectors.npz
  python -m clrec_tf.retrieve --export_dir=DIR --similar_to=a,b --filter='{"category": ["c"], "price": {"max": 20}}'
  python -m clrec_tf.retrieve --export_dir=DIR --vectors=items.parquet

--export_dir may also be one version, which is then the one that is searched. A bundle is code:
TensorFlow runs the graph that it holds, so read only bundles of those whom you would let run programs."""


def main(config: Config) -> None:
    """Runs the command; output appears whole or not at all."""
    settings = config.retrieve
    _check(settings)
    popularity = config.dial.one
    bundle = load_bundle(_export_dir(config))
    options = SearchOptions(settings.k, settings.exclude_seen, settings.intents, settings.merge, popularity=popularity,
                            passing=bundle.attributes.checked(_filter(settings.filter), "--filter") or ())
    if settings.vectors:
        logging.info("wrote the vectors of %d items to %s", write_vectors(settings.vectors, bundle), settings.vectors)
        return
    retriever = Retriever(bundle, options)
    if popularity is not None or not settings.similar_to:  # similar items have a default of their own
        logging.info("popularity %g%s", retriever.defaults.popularity,
                     ", the bundle's default" if popularity is None else "")
    if settings.similar_to:
        items = _typed_user(settings.similar_to, bundle, "--similar_to").history
        for item, result in zip(items, similar_items(retriever, items, [options] * len(items))):
            print(json.dumps({"item": item} | result.entries(), ensure_ascii=False))
    elif settings.users:
        _bulk(retriever, settings)
    elif settings.embeddings:
        requests = [_typed_user(settings.history, bundle)] if settings.history else []
        _write_embeddings(retriever, settings.embeddings, list(range(len(requests))),
                          [retriever.encode(requests)] if requests else [])
    else:
        # All lines are read before the first is answered, so that a bad one leaves no partial output.
        requests = list(_interactive(settings, bundle))
        for start in range(0, len(requests), settings.retrieve_batch):
            for result in retriever(requests[start:start + settings.retrieve_batch])[0]:
                print(json.dumps(result.entries(), ensure_ascii=False))


def _check(settings: RetrieveConfig):
    """What can be refused before anything is loaded."""
    given = [name for name in ("users", "history", "similar_to", "vectors") if getattr(settings, name)]
    if len(given) > 1:
        raise UserError(f"--{given[0]} and --{given[1]} exclude each other: give one")
    for alone, others in (("vectors", ("embeddings", "filter")), ("similar_to", ("embeddings",))):
        for other in others:
            if getattr(settings, alone) and getattr(settings, other):
                raise UserError(f"--{other} does not count with --{alone}: leave it out")
    if settings.output and not settings.users:
        raise UserError(f"--output={settings.output} needs --users: without it, results go to standard output")
    if settings.users and not settings.output and not settings.embeddings:
        raise UserError(f"--users={settings.users} needs --output or --embeddings to write to")
    for flag, value, endings in (("users", settings.users, (".jsonl", ".parquet")),
                                 ("output", settings.output, (".jsonl", ".parquet")),
                                 ("vectors", settings.vectors, (".jsonl", ".parquet")),
                                 ("embeddings", settings.embeddings, (".npz",))):
        if value and not value.endswith(endings):
            raise UserError(f"--{flag}={value}: the name must end in {' or '.join(endings)}")
        if value and flag != "users":
            atomic.check_file_place(value, flag)
    if settings.users and not os.path.isfile(settings.users):
        raise UserError(f"--users={settings.users} does not exist")


def _export_dir(config: Config) -> str:
    export_dir = require(export_dir_of(config.paths), "export_dir", "the bundle that python -m clrec_tf.export wrote")
    return checked_export_dir(export_dir, may_be_version=True)


def _filter(text: str):
    """What --filter says, or None."""
    try:
        return json.loads(text) if text else None
    except ValueError as error:
        raise UserError(f"--filter={text}: this is no JSON ({error}); give an object such as "
                        "{\"category\": [\"a\"], \"price\": {\"max\": 20}}") from error


def _typed_user(history: str, bundle: Bundle, flag: str = "--history") -> UserRequest:
    """The user of --history, or of another flag with item ids."""
    id_type = bundle.manifest["id_type"]
    return UserRequest(None, [parse_item(item.strip(), id_type, flag) for item in history.split(",")])


def _interactive(settings: RetrieveConfig, bundle: Bundle) -> Iterator[UserRequest]:
    """Users of --history or standard input."""
    if settings.history:
        yield _typed_user(settings.history, bundle)
        return
    if sys.stdin is None or sys.stdin.isatty():
        raise UserError("no history: give --history=a,b,c, or JSON lines on standard input")
    user = None
    for user in read_json_lines(sys.stdin.buffer, bundle.manifest["id_type"], "standard input", bundle.query):
        yield user
    if user is None:
        raise UserError("standard input is empty: give --history=a,b,c, or one user per line as JSON")


def _write_embeddings(retriever: Retriever, path: str, user_ids, parts):
    """The vectors of items and of users, who come in `parts`."""
    bundle = retriever.bundle
    users = concatenated(parts, retriever.intents, bundle.width)
    write_embeddings(path, user_ids, users, bundle, retriever.several)


def _bulk(retriever: Retriever, settings: RetrieveConfig):
    """Users of a file, in batches."""
    bundle = retriever.bundle
    id_type = bundle.manifest["id_type"]
    user_ids, parts = [], []
    with contextlib.ExitStack() as stack:
        write = stack.enter_context(results_writer(
            settings.output, id_type, bundle.titles is not None, retriever.several)) if settings.output else None
        if settings.users.endswith(".parquet"):
            requests = read_parquet(settings.users, id_type, bundle.query)
        else:
            requests = read_json_lines(stack.enter_context(open(settings.users, "rb")), id_type, settings.users,
                                       bundle.query)
        progress = stack.enter_context(tqdm.tqdm(desc="retrieving", unit="user", disable=not watched()))
        for batch in batches(requests, settings.retrieve_batch):
            if write:
                results, users = retriever(batch)
                write(results)
            else:
                users = retriever.encode(batch)
            if settings.embeddings:
                user_ids += [request.user_id for request in batch]
                parts.append(users)
            progress.update(len(batch))
        if settings.embeddings:
            _write_embeddings(retriever, settings.embeddings, user_ids, parts)


STORES = dict(export_dir=reads_bundle, workdir=reads_bundle_of_run, users=reads_files, output=writes_file,
              embeddings=writes_file, vectors=writes_file)

if __name__ == "__main__":
    command_line.run(main, uses=("paths.export_dir", "paths.workdir", "retrieve", "dial.popularity", "stores"),
                     usage=USAGE, stores=STORES)
