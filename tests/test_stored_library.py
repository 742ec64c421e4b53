"""The Python library with addresses of stores: a log is read, a bundle published and loaded."""
import re

import pytest

import clrec_tf as clrec
from clrec_tf.errors import DataError
from clrec_tf.errors import UserError
from tests import s3_server
from tests.test_warm_start import day_log

pytest.importorskip("moto.server")
pytest.importorskip("obstore")


def test_from_a_log_in_a_store_to_a_bundle_in_a_store(tmp_path, monkeypatch):
    with s3_server.moto() as endpoint:
        s3_server.make_bucket(endpoint, "shop")
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
        s3_server.point_at(endpoint, monkeypatch)
        s3_server.folder("s3://shop/x", "input").write("clicks.csv", day_log(0, range(1, 31), users=60).encode())
        data = clrec.prepare("s3://shop/x/clicks.csv", min_train_length=2)
        assert data.schema.num_users == 60
        run = clrec.train(data, max_history=6, embedding_dim=8, queue_size=128, batch_size=64, attention_heads=2,
                          epochs=1)
        assert run.export(export_dir="s3://shop/export", popularity=0) == "s3://shop/export/1"
        model, version = clrec.load("s3://shop/export"), clrec.load("s3://shop/export/1")
        items = list(model.recommend([[3, 4]], k=3)["item"])
        assert items == list(version.recommend([[3, 4]], k=3)["item"]) and len(items) == 3
        with pytest.raises(DataError, match=re.escape("s3://shop/none holds no complete bundle")):
            clrec.load("s3://shop/none")
        with pytest.raises(UserError, match=re.escape("--input=s3://shop/x/none.csv: nothing is there")):
            clrec.prepare("s3://shop/x/none.csv")
        with pytest.raises(UserError, match="--data_dir=s3://shop/data: .*file systems of this machine only"):
            clrec.prepare("s3://shop/x/clicks.csv", data_dir="s3://shop/data")
