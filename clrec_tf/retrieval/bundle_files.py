"""What the files of a bundle's version folder are called; paths of several parts are relative to that folder.

The names are the format: renaming one makes published bundles unreadable.
"""
import os

MANIFEST_FILE = "manifest.json"  # facts, and size and sha256 of every other file; written last
MODEL_FILE = "saved_model.pb"
IDS_FILE = "item_ids.npy"  # original ids, by position
TITLES_FILE = "titles.json"
QUERY_FILE = "query_values.json"  # features of users and requests, and behaviours, if the tower reads any
DELETED_IDS_FILE = "withdrawn_ids.npy"  # of all deleted items, whether the version's catalogue has them or not
ATTRIBUTES_FILE = "attributes.parquet"  # of items by position, by which requests are filtered, if there are any
HISTORY_FILE = "history_rows.npz"  # what histories read of inserted and updated items, where updates say it
ENCODER_FOLDER = "item_encoder"  # a SavedModel of items that features and dense vector alone describe
FEATURES_FILE = os.path.join(ENCODER_FOLDER, "features.json")  # what it takes
WARMUP_FILE = os.path.join("assets.extra", "tf_serving_warmup_requests")
CONFIG_FILES = "models.config", "batching.config"  # of TensorFlow Serving, in the folder of versions
NEEDS_FILE = "needs.json"  # of a version whose search needs ScaNN's operations, which is no bundle

INDEX_FOLDER = "index"
# In the folder of the index; each kind of index names the files that it alone reads.
INDEX_FILE = "index.json"
QUERIES_FILE = "queries.npy"
BASE_FOLDER = "base"  # of an updated index: the files of the index that was updated
DELETED_FILE = "withdrawn.npy"  # of an updated index: bool by position
