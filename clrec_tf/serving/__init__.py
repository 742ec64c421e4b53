"""The export bundle: SavedModel, index, ids and the manifest that binds them."""
