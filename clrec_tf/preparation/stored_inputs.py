"""What prepare takes from stores, and the data set that it writes there."""
from clrec_tf.data.stored_data import makes_data_set
from clrec_tf.data.stored_data import reads_data_set
from clrec_tf.stores.files import reads_files

_FILES = ("input", "item_features", "dense_features", "user_features", "impressions")
INPUTS = dict.fromkeys(_FILES, reads_files)
STORES = INPUTS | dict(vocabulary_from=reads_data_set, data_dir=makes_data_set)
