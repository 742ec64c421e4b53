"""Settings of the retrieval service and of updates to a published index."""
import dataclasses
import ipaddress

from clrec_tf.errors import UserError
from clrec_tf.settings.setting import Section
from clrec_tf.settings.setting import setting


@dataclasses.dataclass(frozen=True)
class ServeConfig(Section):
    """The retrieval service. What a request does not say is taken from --k, --exclude_seen, --intents and --merge."""
    host: str = setting("127.0.0.1", "Address listened at; 0.0.0.0 in a container.")
    port: int = setting(8501, "Port of HTTP (0: any free one, which the log names).", lower=0, upper=65535)
    grpc_port: int = setting(-1, "Port of gRPC, TF Serving's PredictionService (0: any free one, -1: no gRPC).",
                             lower=-1, upper=65535)
    token_file: str = setting("", "File of tokens, one a line, of which every request must show one as `Authorization: "
                                  "Bearer TOKEN`, in gRPC's metadata too; /healthz and /readyz are open. A changed "
                                  "file holds within a second (empty: nobody is asked).", path=True)
    model_name: str = setting("clrec", "NAME in /v1/models/NAME.")
    serve_version: int = setting(0, "Version served (0: the newest complete one, and each newer one as it appears). A "
                                    "file `serve_version` in --export_dir that holds a number goes before this flag: "
                                    "write it to roll back, remove it to go on.", lower=0, upper=2**63 - 1)
    poll_s: float = setting(5.0, "Seconds between two looks for a new version, at least 0.05; 0: looks only at SIGHUP. "
                                 "With looks, whoever can write to --export_dir decides what is served, and a bundle "
                                 "is code.", lower=0.0)
    page: bool = setting(False, "Also a page at / on which a person tries histories out.")
    impression_log: str = setting("", "Folder for what was shown, as Parquet files that prepare --impressions reads: "
                                      "request, user, time, version, items with ranks (empty: none).", path=True)
    impression_log_rows: int = setting(100_000, "Items shown in a file of --impression_log.", lower=1)
    impression_log_s: float = setting(60.0, "Seconds after which a file of --impression_log is written though it has "
                                            "fewer rows; a killed process loses at most as many.", lower=0.1)
    max_k: int = setting(1000, "Most items that one user may be given.", lower=1, upper=10_000)
    max_listed: int = setting(10_000, "Most ids in `history`, `exclude` or `allow` of a user.", lower=1)
    max_instances: int = setting(256, "Most users in one request.", lower=1)
    max_request_bytes: int = setting(2_000_000, "Largest body accepted.", lower=1000)
    max_batch: int = setting(32, "Most users encoded and searched at once; a request of more goes alone.", lower=1)
    max_waiting: int = setting(512, "Users that may wait for a batch; requests beyond are refused with 503.", lower=1)
    max_per_client: int = setting(0, "Requests of one address under way, beyond which it gets 429 (0: any).", lower=0)
    trusted_proxies: tuple[str, ...] = setting((), "Addresses or networks (10.0.0.0/8) of the proxies before HTTP "
                                                   "whose X-Forwarded-For is believed; no other's is.")
    max_connections: int = setting(1000, "Connections open at once, beyond which 503 is answered.", lower=1)
    max_wait_ms: int = setting(50, "Longest wait that a request may have to expect, going by what batches took lately; "
                                   "beyond, 503.", lower=1)
    timeout_ms: int = setting(1000, "Longest wait of an accepted request, after which it gets 504.", lower=1)
    read_timeout_s: float = setting(5.0, "Seconds in which a request must have arrived whole; then 408, or the "
                                         "connection is closed.", lower=0.05)
    drain_s: float = setting(3.0, "Seconds between SIGTERM, when /readyz turns 503, and the end of accepting.",
                             lower=0.0)
    serve_workers: int = setting(1, "Batches that may run at a time; with many cores, more serve more.", lower=1)
    serve_threads: int = setting(1, "Threads of TensorFlow per operation; batches are too small for more to help.",
                                 lower=1)

    def __post_init__(self):
        super().__post_init__()
        if 0 < self.poll_s < 0.05:
            raise UserError(f"--poll_s={self.poll_s}: must be ≥ 0.05, or 0 to look only at SIGHUP")
        for proxy in self.trusted_proxies:
            try:
                ipaddress.ip_network(proxy)
            except ValueError as error:
                raise UserError(f"--trusted_proxies={proxy}: {error}; give addresses or networks, such as 10.0.0.0/8, "
                                "separated by commas") from error


@dataclasses.dataclass(frozen=True)
class UpdateConfig(Section):
    """Items inserted, updated and deleted, published as a new version without a rebuild."""
    upsert: str = setting("",
        "File of items to insert or update, .jsonl or .parquet, with `id` and either `vector` (as the index compares "
        "them; normalized if the model compares by the cosine) or `like` (ids of the bundle, whose mean vector is "
        "taken), "
        "and optionally `title`. A known id alone restores a deleted item with the vector that it had.", path=True)
    withdraw: str = setting("", "Text file of item ids to delete, one a line; unknown ones are warned of.", path=True)
