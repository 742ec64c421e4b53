"""Which cases of a parametrized test CI runs, where further ones cost much and show little more."""
import pytest


def in_ci(cases, *names) -> list:
    """The cases for `parametrize`: those not named are marked long.

    Args:
      cases: strings, or a dictionary by name.
      names: of at least one of them.
    """
    assert names and set(names) <= set(cases), f"{set(names) - set(cases)} are no cases"
    return [case if case in names else pytest.param(case, marks=pytest.mark.long) for case in cases]
