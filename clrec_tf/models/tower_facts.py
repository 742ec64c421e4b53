"""What a tower tells of itself, by the encoders it is made of."""
import math
from typing import Optional


class TowerFacts:
    """Facts of a `TwoTower`, whose attributes it reads."""

    @property
    def logit_bound(self) -> float:
        """What no logit exceeds: 1/ρ for the cosine."""
        return 1.0 / self.temperature if self.similarity == "cosine" else math.inf

    @property
    def num_intents(self) -> int:
        """H, vectors per user."""
        return self.user_encoder.num_vectors

    @property
    def served_intents(self) -> int:
        """How many of a user's vectors are searched where nobody says: those that the loss gives a score for."""
        return self.num_intents

    @property
    def routes_by_category(self) -> bool:
        """Whether a user's vectors are those of intents that items are routed to by their category."""
        return False

    @property
    def target_aware(self) -> bool:
        """Whether each candidate reads slots of a user by itself: then there is no vector to search a catalogue by."""
        return self.user_encoder.target_aware

    @property
    def score_temperature(self) -> Optional[float]:
        """ρ where an item's score is ρ·log Σ_k e^{⟨u_k, y⟩/ρ} of a user's vectors, for which losses over intents are
        calibrated; None: the largest product."""
        return self.temperature if self.routes_by_category else None

    @property
    def intent_coordinates(self) -> int:
        """How many numbers compared vectors have behind f and g, of what a user's several vectors are weighed by."""
        return 0

    @property
    def reads(self) -> frozenset:
        """What the query tower reads of clicks beside items and behaviours: of "times", "dwell"."""
        return self.user_encoder.reads

    @property
    def uses_time(self) -> bool:
        """Whether the query tower reads time gaps."""
        return "times" in self.reads

    @property
    def uses_dwell(self) -> bool:
        """Whether the query tower reads dwell times."""
        return "dwell" in self.reads

    @property
    def uses_events(self) -> bool:
        """Whether the query tower reads the behaviour of clicks."""
        return self.user_encoder.sizes.event_kinds > 0

    @property
    def query_features(self) -> tuple:
        """Features of users and requests that the query tower reads."""
        return self.user_encoder.sizes.query_features

    @property
    def knows_strangers(self) -> bool:
        """Whether users without a history were trained for, by `query_features`."""
        return self.history_dropout > 0

    @property
    def reads_features(self) -> bool:
        """Whether any tower reads item features."""
        return self.item_encoder.item_width > 1

    @property
    def describes_items(self) -> bool:
        """Whether anything beside its id tells of an item."""
        return self.reads_features or getattr(self.item_encoder, "content", None) is not None

    @property
    def history_width(self) -> int:
        """Numbers per item that the query tower reads: of `history_vectors`."""
        return self.item_encoder.dim

    @property
    def query_variables(self) -> list:
        """What `user_intents` reads, given the items' vectors."""
        return self.user_encoder.variables
