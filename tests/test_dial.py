"""The dial: φ + α·log p̂ as one more coordinate, the choice of α, and the closed forms that it connects."""
import numpy as np
import pytest

from clrec_tf.config import DialConfig
from clrec_tf.errors import UserError
from clrec_tf.lab.proof.table_checks import ranking
from clrec_tf.losses import closed_forms
from clrec_tf.models import dial

RHO = 0.07


def test_one_more_coordinate_is_the_sum_of_the_formula():
    """ρ·(φ + α·(log p̂ − c)) by a loop over users and items; p̂ of an item without a click counts one."""
    rng = np.random.default_rng(0)
    users, items, counts = rng.standard_normal((5, 4)), rng.standard_normal((7, 4)), np.array([9, 0, 1, 400, 3, 3, 80])
    coordinate = dial.item_coordinate(counts, RHO)
    clicked = [9, 1, 1, 400, 3, 3, 80]
    log_p = [np.log(n / sum(clicked)) for n in clicked]
    for alpha in (-0.25, 0.0, 0.5, 1.0, 1.25):
        found = dial.with_coordinate(users, alpha) @ dial.with_coordinate(items, coordinate).T
        for user in range(5):
            for item in range(7):
                phi = users[user] @ items[item] / RHO
                expected = RHO * (phi + alpha * (log_p[item] - sum(log_p) / 7))
                assert found[user, item] == pytest.approx(expected, abs=1e-5)
    assert coordinate.mean() == pytest.approx(0, abs=1e-7) and coordinate[1] == coordinate[2]


def test_an_inserted_item_has_the_coordinate_of_an_old_one_with_as_many_clicks():
    counts = np.array([9, 0, 1, 400])
    mean = dial.mean_log_count(counts)
    assert [dial.inserted_coordinate(count, RHO, mean) for count in counts] == pytest.approx(
        dial.item_coordinate(counts, RHO).tolist(), abs=1e-7)


def test_users_without_a_click_have_no_popularity():
    users = dial.with_coordinate(np.array([[0.0, 0.0], [3.0, 4.0]]), 0.0)
    turned = dial.at_popularity(users, 0.75)
    assert turned.tolist() == [[0, 0, 0], [3, 4, 0.75]] and not users[:, 2].any()
    assert dial.at_popularity(turned, 0.0).tolist() == users.tolist()
    several = dial.with_coordinate(np.array([[[1.0, 0.0], [0.0, 0.0]]]), 0.0)
    assert dial.at_popularity(several, -0.25).tolist() == [[[1, 0, -0.25], [0, 0, 0]]]


def test_the_grid_holds_the_bounds_and_zero():
    assert dial.grid(-0.25, 1.25, 0.5) == [-0.25, 0, 0.5, 1, 1.25]
    assert dial.grid(-0.25, 1.25, 0.25) == [-0.25, 0, 0.25, 0.5, 0.75, 1, 1.25]
    assert dial.grid(0, 0, 0.25) == [0] and dial.grid(-0.3, 0.1, 0.25) == [-0.3, -0.25, 0, 0.1]


def test_the_choice_is_the_best_or_the_most_diverse_of_those_almost_as_good():
    curve = {0.0: (0.10, 900), 0.5: (0.190, 700), 1.0: (0.2, 500), 1.25: (0.2, 300)}
    assert dial.choose(curve, 0.0) == 1.0  # of equals the nearest to 0
    assert dial.choose({-0.25: (0.0, 7), 0.0: (0.0, 5), 1.0: (0.0, 9)}, 0.0) == 0.0
    assert dial.choose(curve, 0.04) == 1.0 and dial.choose(curve, 0.06) == 0.5 and dial.choose(curve, 1.0) == 0.0
    assert dial.choose({0.0: (-0.1, 5), 1.0: (-0.2, 9)}, 0.5) == 0.0  # a share of the best, also below 0


@pytest.mark.parametrize("beta", [0.0, 0.3, 0.75, 1.0])
def test_serving_at_alpha_ranks_as_training_at_beta_minus_alpha(beta):
    """e^φ = p/p_d^β at the optimum, so φ + α·log p_d is that of β − α, exactly; so for impressions with q̄."""
    rng = np.random.default_rng(1)
    p = rng.dirichlet(np.full(40, 0.5), 6) + 1e-6
    p /= p.sum(axis=1, keepdims=True)
    popularity, shown = p.mean(axis=0), rng.dirichlet(np.ones(40))
    for alpha in (-0.25, 0.25, beta, 1.0):
        turned = closed_forms.dialled(closed_forms.debiased(p, popularity, beta), popularity, alpha)
        np.testing.assert_allclose(turned, closed_forms.debiased(p, popularity, beta - alpha), rtol=1e-9)
        np.testing.assert_array_equal(ranking(turned), ranking(closed_forms.debiased(p, popularity, beta - alpha)))
    np.testing.assert_allclose(closed_forms.dialled(closed_forms.impression_queue(p, shown), shown, 1.0), p, rtol=1e-9)
    np.testing.assert_allclose(closed_forms.dialled(closed_forms.click_queue(p, popularity), popularity, 1.0), p)
    noise = closed_forms.normalized(popularity ** 0.75)
    np.testing.assert_allclose(closed_forms.dialled(closed_forms.negative_sampling(p, noise), popularity, 0.75), p)


def test_names_of_the_curve():
    assert dial.name("hr@10/full", 0.5) == "hr@10/full/popularity=0.5"
    assert dial.name("hr@10/full", -0.0).endswith("=0") and str(DialConfig(popularity=("-0",)).one) == "0.0"
    assert dial.name("hr@10/full", -0.25).endswith("=-0.25") and dial.name("mrr/full", 1.0).endswith("=1")
    names = [dial.name("hr@10/full", value) for value in (1.0, 0.0, 0.5)] + ["hr@10/full", "hr@10/full/low"]
    assert dial.values_named("hr@10/full", names) == [0, 0.5, 1]


@pytest.mark.parametrize("settings, words", [
    (dict(popularity=("much",)), "--popularity=much is no number: give numbers such as 0.5, or auto"),
    (dict(popularity=("nan",)), "--popularity=nan is no number"), (dict(popularity=("inf",)), "--popularity=inf is no"),
    (dict(popularity=()), "--popularity is empty"), (dict(popularity=("0", "auto")), "--popularity=auto is no number"),
    (dict(popularity_range=("0",)), "--popularity_range=0: give the least and the largest"),
    (dict(popularity_range=("1", "0")), "--popularity_range=1,0: give the least"),
    (dict(popularity_range=("0", "1e9")), "none beyond 5"), (dict(popularity=("1", "1.0")), "names a value twice"),
    (dict(popularity_range=("0.5", "1")), "0 among them"), (dict(popularity_range=("x", "1")), "--popularity_range=x is"),
    (dict(popularity_tolerance=1.5), "--popularity_tolerance=1.5: must be ≤ 1")])
def test_settings_that_are_no_numbers_are_refused(settings, words):
    with pytest.raises(UserError, match=words):
        DialConfig(**settings)


def test_one_value_or_several():
    assert DialConfig().values is None and DialConfig().one is None and DialConfig().range == (-0.25, 1.25)
    assert DialConfig(popularity=("0.5",)).one == 0.5 and DialConfig(popularity=("0", "1")).values == [0, 1]
    with pytest.raises(UserError, match="--popularity=0,1: requests are answered at one value"):
        DialConfig(popularity=("0", "1")).one  # pylint: disable=expression-not-assigned
    DialConfig(popularity=("2",), popularity_range=("0", "2")).check()
    with pytest.raises(UserError, match="--popularity=2 is outside --popularity_range=-0.25,1.25: give a value inside"):
        DialConfig(popularity=("0", "2")).check()
