"""The metrics that Prometheus reads."""
import prometheus_client as prometheus

_SECONDS = (.001, .002, .003, .004, .005, .0075, .01, .015, .02, .03, .05, .075, .1, .2, .5, 1, 2, 5)


class Metrics:
    """All metrics of one service, in a registry of its own."""

    def __init__(self):
        self.registry = prometheus.CollectorRegistry()
        prometheus.ProcessCollector(registry=self.registry)
        self._requests = prometheus.Counter("clrec_requests", "Requests answered.", ["signature", "status"],
                                            registry=self.registry)
        self._seconds = prometheus.Histogram(
            "clrec_request_seconds", "From the whole request to its answer.", ["signature"], buckets=_SECONDS,
            registry=self.registry)
        self._stages = prometheus.Histogram(
            "clrec_stage_seconds", "wait: of a request for its batch; batch: all of one batch, of which tower and "
            "search are parts.", ["stage"], buckets=_SECONDS, registry=self.registry)
        self._jobs = prometheus.Histogram("clrec_batch_users", "Users of a batch.",
                                          buckets=(1, 2, 4, 8, 16, 32, 64, 128, 256), registry=self.registry)
        self._fallbacks = prometheus.Counter(
            "clrec_fallback_users", "Users without a known click, who get the most popular items.",
            registry=self.registry)
        self._unknown = prometheus.Counter("clrec_unknown_clicks", "Clicks on items that the model does not know.",
                                           registry=self.registry)
        self._version = prometheus.Gauge("clrec_model_version", "Version served.", registry=self.registry)
        self._items = prometheus.Gauge("clrec_model_items", "Items that can be retrieved.", registry=self.registry)
        self._recall = prometheus.Gauge("clrec_index_recall", "Recall of the index against exact search, as measured "
                                        "when it was published.", registry=self.registry)
        self._refused = prometheus.Counter("clrec_versions_refused", "Versions that could not be served.",
                                           registry=self.registry)
        self._store_failures = prometheus.Counter("clrec_store_failures", "Looks at --export_dir at which its store did "
                                                  "not answer until --store_deadline_s.", registry=self.registry)
        self._impressions = prometheus.Counter("clrec_impressions_logged", "Items shown whose row is in a file of "
                                               "--impression_log.", registry=self.registry)
        self._lost = prometheus.Counter(
            "clrec_impressions_lost", "Items shown whose row is in no file. queue: too many waited; write: their file "
            "could not be written.", ["reason"], registry=self.registry)
        for reason in ("queue", "write"):
            self._lost.labels(reason)
        self.stages = {name: self._stages.labels(name) for name in ("wait", "batch", "tower", "search")}

    def waiting(self, count) -> None:
        """`count()` gives the users that wait for a batch."""
        prometheus.Gauge("clrec_waiting_users", "Users that wait for a batch.", registry=self.registry
                         ).set_function(count)

    def observe(self, measure: str, value: float) -> None:
        """A stage took so many seconds, or a batch had so many "jobs"."""
        if measure == "jobs":
            self._jobs.observe(value)
        else:
            self.stages[measure].observe(value)

    def answered(self, signature: str, status: int, seconds: float) -> None:
        """A request was answered; "" for the signature of one that was not understood."""
        self._requests.labels(signature, str(status)).inc()
        if status == 200:
            self._seconds.labels(signature).observe(seconds)

    def answers(self, answers) -> None:
        """What users were given."""
        for answer in answers:
            if answer.get("fallback"):
                self._fallbacks.inc()
            if "unknown" in answer:
                self._unknown.inc(len(answer["unknown"]))

    def impressions(self, what: str, items: int) -> None:
        """Items shown were "logged", or lost in the "queue" or at the "write"."""
        (self._impressions if what == "logged" else self._lost.labels(what)).inc(items)

    def swapped(self, engine) -> None:
        """Another version is served."""
        manifest = engine.bundle.manifest
        self._version.set(engine.version)
        self._items.set(engine.bundle.counts["items"])
        self._recall.set(manifest["measured"]["recall"])

    def refused(self) -> None:
        """A version could not be served."""
        self._refused.inc()

    def unreachable(self) -> None:
        """The store of --export_dir failed."""
        self._store_failures.inc()

    def text(self) -> bytes:
        """In Prometheus' text format."""
        return prometheus.generate_latest(self.registry)
