"""What changed in the data from one day to the next."""
import numpy as np

from clrec_tf.data.catalogue import read_catalogue
from clrec_tf.data.catalogue import read_feature_values
from clrec_tf.data import schema as schema_lib


def between(before: str, now: str) -> dict:
    """Figures of two data folders, the earlier first.

    Returns:
      users, items, clicks: [before, now]; `new_items` and `new_item_clicks`, shares of today's items and training
      clicks; `lost_features`, names; `widened_features`, of one value before and several now;
      `new_values`, feature -> values never seen; `drift`, see `drift`.
    """
    schemas = [schema_lib.load_schema(folder) for folder in (before, now)]
    catalogues = [read_catalogue(folder, schema, schema_lib.load_manifest(folder))
                  for folder, schema in zip((before, now), schemas)]
    features = [{feature.name: feature.width for feature in schema.features}
                | {feature.key: feature.width for feature in schema.query_features} for schema in schemas]
    names, widths = [list(each) for each in features], features
    values = [read_feature_values(folder) for folder in (before, now)]
    known = set(catalogues[0].original_ids)
    new = np.array([item not in known for item in catalogues[1].original_ids], bool)
    counts = catalogues[1].counts
    return dict(
        users=[schema.num_users for schema in schemas], items=[schema.num_items for schema in schemas],
        clicks=[schema.total_clicks for schema in schemas], new_items=round(float(new.mean()), 4),
        new_item_clicks=round(float(counts[new].sum() / max(counts.sum(), 1)), 4),
        lost_features=sorted(set(names[0]) - set(names[1])),
        widened_features=sorted(name for name in widths[0] if widths[0][name] == 1 < widths[1].get(name, 1)),
        new_values={name: len(set(values[1][name]) - set(values[0].get(name, ()))) for name in names[1]
                    if name in values[1]},
        drift=round(drift(*(dict(zip(each.original_ids, each.counts)) for each in catalogues)), 4))


def drift(before: dict, now: dict) -> float:
    """Total variation ½ Σ_y |p̂_before(y) − p̂_now(y)| between click frequencies, id -> clicks, in 0..1."""
    totals = [max(sum(counts.values()), 1) for counts in (before, now)]
    return 0.5 * sum(abs(before.get(item, 0) / totals[0] - now.get(item, 0) / totals[1]) for item in {**before, **now})
