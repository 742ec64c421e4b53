"""Package metadata. Versions that were tested together are pinned in constraints.txt and constraints-tf220.txt."""
import pathlib
import re

import setuptools

HERE = pathlib.Path(__file__).parent

SERVE = ["fastapi>=0.115", "uvicorn>=0.54,<0.55", "uvloop>=0.19", "httptools>=0.6", "msgspec>=0.19",
         "prometheus-client>=0.20"]
MLFLOW = ["mlflow-skinny>=3", "sqlalchemy>=2", "alembic>=1.13"]  # the last two for its default store, a file
FAISS = ["faiss-cpu>=1.8"]
# Its operations are built for one TensorFlow, and load with no later one.
IO = ["tensorflow-io==0.37.1"]
STORES = ["obstore>=0.12"]  # s3:// and gs://; hdfs:// needs pyarrow and Hadoop's own library too
# Needs protobuf below 7, which is older than that of the set of TensorFlow 2.20.
BEAM = ["apache-beam>=2.77"]
# trec_eval's metrics stand beside ours; pandas and Optuna beside the library, as docs/python.md uses them.
TEST = ["pytest>=8", "pytest-xdist>=3", "hypothesis>=6.100", "kubernetes-validate>=1.37", "schemathesis>=4",
        "optuna>=5", "pandas>=3", "pytrec-eval-terrier>=0.5.11", *FAISS, *MLFLOW, *STORES,
        "moto>=5.1", "flask>=3", "flask-cors>=5",  # a server of S3
        "atheris>=3; platform_system == 'Linux' and platform_machine == 'x86_64'"]  # fuzzes readers of files

setuptools.setup(
    name="clrec_tf",
    version=re.search(r'__version__ = "(.+)"', (HERE / "clrec_tf" / "__init__.py").read_text(encoding="utf-8"))[1],
    description="CLRec for TensorFlow 2: candidate generation debiased by contrastive learning "
                "with queues of clicked items",
    long_description=(HERE / "README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    packages=setuptools.find_packages(include=["clrec_tf", "clrec_tf.*"]),
    package_data={"clrec_tf": ["py.typed"], "clrec_tf.server": ["*.html"], "clrec_tf.reporting": ["*.css"]},
    python_requires=">=3.11,<3.14",
    # pip takes any of these together, and not all work: the constraints hold two sets that were tested.
    install_requires=[
        "tensorflow>=2.17.1,<2.21",
        "tf-keras>=2.17,<2.21",
        "tensorflow-recommenders>=0.7.7",
        "tensorflow-serving-api>=2.17.1,<2.21",
        "scann>=1.3.4,<1.5; platform_system == 'Linux' and platform_machine == 'x86_64'",
        "numpy>=1.26.4,<3",
        "protobuf>=4.25",
        "absl-py>=2",
        "polars>=2.1",
        "matplotlib>=3.8",
        "tqdm>=4.60",
    ],
    entry_points={"console_scripts": ["clrec=clrec_tf.console:main"]},
    extras_require={"serve": SERVE, "faiss": FAISS, "mlflow": MLFLOW, "io": IO, "stores": STORES, "beam": BEAM,
                    "test": SERVE + TEST},
)
