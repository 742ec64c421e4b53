"""A statement about a measured value that a proof requires."""
import dataclasses


@dataclasses.dataclass(frozen=True)
class Check:
    """A statement `value relation bound` that must hold; relation is "<" or ">"."""
    name: str
    value: float
    relation: str
    bound: float

    @property
    def passed(self) -> bool:
        """Whether it holds; NaN never does."""
        return bool(self.value < self.bound if self.relation == "<" else self.value > self.bound)
