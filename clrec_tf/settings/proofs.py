"""Settings of measurements, generated worlds and proofs."""
import dataclasses

from clrec_tf.settings.setting import Section
from clrec_tf.settings.setting import setting


@dataclasses.dataclass(frozen=True)
class BenchmarkConfig(Section):
    """Measurements."""
    suite: tuple[str, ...] = setting(("training",),
        "What is measured, of: training (queue variants, bare operations, growth with items and queue; and input), "
        "losses (CLRec beside sampled softmax), encoders (samples/s and parameters of each --user_encoder), "
        "u2u (--pretext=u2u with its cached queue beside one that encodes its sequences anew), "
        "input (reading alone beside training; --data_dir or generated data), tfrs (beside TensorFlow Recommenders; "
        "needs --data_dir), quality (validation HR@10 by seconds of training: our towers, TensorFlow Recommenders and "
        "RecTools; needs --data_dir; 20 minutes on ML-1M), memory (peak of training; takes 9 GB), prepare (time for "
        "--events clicks), cluster (bytes "
        "per sample and calls per second of a cluster of processes on this machine; Linux), multi_queue (Multi-CLRec's "
        "loss beside bare matrix products, its steps beside CLRec's), retrieval (nearest items among a tenth of "
        "--benchmark_items and all: exact, ScaNN at --target_recall, updated, faiss if installed), serve (the "
        "retrieval service under load; its bundles stay in --workdir, if given), impression_log (latency with "
        "--impression_log beside without).")
    json: str = setting("", "File for the figures, or doctor's findings, as JSON, besides printing them.", path=True)
    rectools_python: str = setting("", "Interpreter that has RecTools, with PyTorch (suite quality; without, RecTools "
                                       "is left out).", path=True)
    rounds: int = setting(7, "Times that each side of a comparison is measured, in turn; fewer than 3 are noise.",
                          lower=1)
    benchmark_items: int = setting(1_000_000, "Items of the generated catalogue (suites training, losses, "
                                              "encoders, u2u, cluster, multi_queue, retrieval, serve and "
                                              "impression_log).", lower=1000)
    benchmark_histories: tuple[str, ...] = setting(("10", "50"), "Lengths of history compared (training, losses, "
                                                                 "encoders, u2u, cluster, multi_queue).")
    events: int = setting(20_000_000, "Clicks of the generated log (suite prepare).", lower=1000)
    serve_seconds: float = setting(60.0, "Seconds of each run at 100 requests/s and of the overload (suite serve); "
                                         "its other runs, and impression_log's, are shorter in "
                                         "proportion.", lower=0.5, upper=600.0)


@dataclasses.dataclass(frozen=True)
class ProofConfig(Section):
    """The proof that each loss learns what its formula says (debias_proof)."""
    parts: tuple[str, ...] = setting(("closed_forms", "stochastic"),
        "What is proved, of: closed_forms (the exact optimum of every loss in every world), stochastic (each loss "
        "trained, beside its own optimum), end_to_end (CLRec beside sampled softmax and others, from the log of a "
        "generated world to trained towers, in --workdir; configs/exposure_world.flags), intents (Multi-CLRec beside "
        "both in a world whose exposure follows intent), weekend (CLRec and Multi-CLRec trained on weekdays, tested "
        "then and at the weekend; both configs/intent_world.flags), contexts (CLRec with and without --debias_context in "
        "a world whose exposure follows the request's context), launches (items without clicks in a world in which "
        "features make quality; configs/launches.flags).")
    repetitions: int = setting(3, "Seeds, from --seed on, that the parts with towers are repeated with.", lower=1)
    mask_hits: bool = setting(False,
        "Mask copies of the positive in the click queue of the stochastic part: a defect, which must fail the proof.")


@dataclasses.dataclass(frozen=True)
class ExposureWorldConfig(Section):
    """A generated log of impressions and clicks whose exposure and relevance are known."""
    world_dir: str = setting("", "Folder of the generated world: clicks, impressions, items and the truth.", path=True)
    exposure_policy: str = setting("pop",
        "What the old system shows q(y|x), mixed with 2 % uniform: pop = popularity. quality = popularity · e^s. "
        "intent = popularity · e^τ where the intent matches. personal = intent · e^(1.5 VᵀU). uniform: no bias.",
        choices=("pop", "quality", "intent", "personal", "uniform"))
    exposure_size: str = setting("small", "small: 2,000 users and 2,000 items. full: 20,000 users and 10,000 items.",
                                 choices=("small", "full"))
    exposure_users: int = setting(0, "Users of the world (0: by --exposure_size; 6,000 in launches).", lower=0)
    exposure_items: int = setting(0, "Items of the world (0: by --exposure_size; 2,000 in launches).", lower=0)
    exposure_visits: int = setting(40, "Mean visits per user; each ends with a click or after 50 impressions.",
                                   lower=1, upper=1000)
    exposure_weeks: int = setting(3, "Weeks that the visits are spread over; the first begins on a Monday.",
                                  lower=1, upper=52)
    exposure_types: int = setting(48, "Types of users' lasting taste U.", lower=2, upper=1000)
    exposure_shelves: int = setting(1, "Storefronts, one for each visit by chance, whose popularities are ranked "
                                       "differently: contexts that decide exposure, and no one's taste.", lower=1,
                                    upper=16)
    exposure_zipf: float = setting(1.0, "Exponent a of the popularity rank^−a.", lower=0.0, upper=3.0)
    exposure_tau: float = setting(2.0, "Log odds τ of being shown where the intent matches.", lower=0.0, upper=10.0)
    intent_bonus: float = setting(1.5, "Log odds b of a click where the intent matches.", lower=0.0, upper=10.0)
    quality_std: float = setting(0.0, "Standard deviation σ_s of the items' quality s.", lower=0.0, upper=5.0)
    weekend_shift: float = setting(0.6,
        "How much weekends differ: half of the types come 1 + this times as often then, the others 1 − this; each half "
        "favours other intents by as much.", lower=0.0, upper=0.95)


@dataclasses.dataclass(frozen=True)
class RandomisedConfig(Section):
    """Training on a self-selected part, evaluation on a part whose exposure was uniformly random."""
    selected_ratings: str = setting("", "File of the ratings of self-selected items, trained on; --ratings_form.",
                                    path=True)
    random_ratings: str = setting("",
        "File of the ratings of items drawn uniformly, evaluated on; pairs of --selected_ratings are dropped.",
        path=True)
    ratings_form: str = setting("auto",
        "matrix: a row of numbers per user, a column per item, 0 = missing. triples: lines of user, item, rating, with "
        "or without a header. auto: triples if the name ends in .csv or .tsv (also .gz).",
        choices=("auto", "matrix", "triples"))
    click_rating: float = setting(4.0, "A rating of at least this is a click.")
    propensity_matrix: str = setting("",
        "Matrix file, users by items, of the propensities of --selected_ratings, for the loss ipw (empty: no ipw).",
        path=True)
    item_vectors: str = setting("", "Matrix file, items by width, of dense item vectors (empty: ids alone).", path=True)
    randomised_losses: tuple[str, ...] = setting((),
        "Losses compared, of: mle, sampled_softmax, ipw, ipw_popularity, clrec, clrec_beta_.75, clrec_beta_.5, "
        "clrec_impressions (default: all).")
    randomised_seeds: int = setting(5, "Seeds, from --seed on, that every loss is trained with.", lower=1)
    epochs_tried: tuple[str, ...] = setting(("5", "10", "20", "40", "80"),
        "Numbers of epochs of which all losses take the one with which mle ranks held-out training clicks best "
        "(empty: --epochs).")
