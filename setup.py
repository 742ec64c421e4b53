"""Package metadata. The versions that were tested together are pinned in constraints.txt."""
import pathlib
import re

import setuptools

HERE = pathlib.Path(__file__).parent

SERVE = ["fastapi>=0.115", "uvicorn>=0.54,<0.55", "uvloop>=0.19", "httptools>=0.6", "msgspec>=0.19",
         "prometheus-client>=0.20"]
# faiss stands beside ScaNN in `benchmark --suite=retrieval`.
TEST = ["pytest>=8", "pytest-xdist>=3", "hypothesis>=6.100", "kubernetes-validate>=1.37", "schemathesis>=4",
        "faiss-cpu>=1.8"]

setuptools.setup(
    name="clrec_tf",
    version=re.search(r'__version__ = "(.+)"', (HERE / "clrec_tf" / "__init__.py").read_text(encoding="utf-8"))[1],
    description="CLRec for TensorFlow 2: candidate generation debiased by contrastive learning "
                "with queues of clicked items",
    long_description=(HERE / "README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    packages=setuptools.find_packages(include=["clrec_tf", "clrec_tf.*"]),
    package_data={"clrec_tf.server": ["*.html"], "clrec_tf.reporting": ["*.css"]},
    python_requires=">=3.11,<3.12",
    # Only these versions work together: tensorflow-io and scann hold ops built for one TensorFlow.
    install_requires=[
        "tensorflow==2.17.1",
        "tf-keras==2.17.0",
        "tensorflow-recommenders==0.7.7",
        "tensorflow-serving-api==2.17.1",
        "tensorflow-io==0.37.1",
        "scann==1.3.4",
        "numpy==1.26.4",
        "protobuf>=4.25,<4.26",
        "absl-py>=2",
        "polars>=2.1",
        "matplotlib>=3.8",
        "tqdm>=4.60",
    ],
    extras_require={"serve": SERVE, "test": SERVE + TEST},
)
