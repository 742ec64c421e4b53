"""The picture of a user's intents: who is drawn, and words that a font cannot show or a box cannot hold."""
import numpy as np
import pytest

from clrec_tf.evaluation.intent_example import draw_user
from clrec_tf.evaluation.intent_example import IntentExample
from clrec_tf.evaluation.intent_example import ShownItem
from clrec_tf.evaluation.intent_example import ShownVector
from clrec_tf.evaluation import intent_figure


def test_users_with_enough_clicks_come_first():
    clicks = np.array([3, 15, 2, 40, 14])
    assert {draw_user(clicks, seed) for seed in range(40)} == {1, 3}
    assert {draw_user(clicks[[0, 2]], seed) for seed in range(40)} == {0, 1}
    assert draw_user(clicks, 5) == draw_user(clicks, 5)


@pytest.mark.parametrize("words, shown", [
    ("Amélie (2001)", "Amélie (2001)"), ("two\nlines", "two lines"), ("Ran 乱 (1985)", "Ran ? (1985)"),
    ("連衣裙", "17"), ("", "")])
def test_letters_without_a_glyph(words, shown):
    assert intent_figure.readable(words, "17") == shown


def test_nothing_readable_is_a_question_mark():
    assert intent_figure.readable("連衣裙", "連衣裙") == "?"


def test_long_words_are_cut_to_the_room():
    words = "A very long title that no box would ever hold, since it goes on and on"
    cut = intent_figure.shortened(words, 8, 2.0)
    assert cut.endswith("…") and words.startswith(cut[:-1]) and 20 < len(cut) < 50
    assert len(intent_figure.shortened(words, 16, 2.0)) < len(cut)
    assert intent_figure.shortened("short", 8, 2.0) == "short"


@pytest.mark.parametrize("vectors", [7, *(pytest.param(count, marks=pytest.mark.long) for count in (2, 4))])
def test_picture_of_strange_titles_is_written(tmp_path, vectors):
    items = [ShownItem("$100 or $x_{$", "1", "a", 3), ShownItem("連衣裙 " * 40, "x" * 300, "類", 1),
             ShownItem("(not in the vocabulary)", "", "", None)]
    example = IntentExample(7, 20, items * 5, items[2],
                            [ShownVector(n, 1 / (n + 1), items[:2]) for n in range(vectors)], "category")
    path = intent_figure.save_intents(str(tmp_path), example)
    with open(path, "rb") as file:
        assert file.read(8) == b"\x89PNG\r\n\x1a\n"
    assert [entry.name for entry in tmp_path.iterdir()] == [intent_figure.INTENTS_FILE]
