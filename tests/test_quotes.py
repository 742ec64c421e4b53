"""Quotes in delimited text: stray ones lose no row, and fields that really hold line breaks are read."""
import csv
import io

import numpy as np
import pytest

from clrec_tf.errors import DataError
from clrec_tf.errors import UserError
from clrec_tf.tabular_files import quotes
from clrec_tf.tabular_files.room import Room
from tests import log_files
from tests.log_files import read
from tests.log_files import ROWS
from tests.log_files import text
from tests.log_files import written

WITH_TITLES = text(header="user,item,time,title", more=",t")


def changed(**lines) -> str:
    """The log with other ends of some lines, by their numbers."""
    rows = WITH_TITLES.splitlines()
    for name, title in lines.items():
        number = int(name.removeprefix("line"))
        rows[number - 1] = rows[number - 1].removesuffix("t") + title
    return "\n".join(rows) + "\n"


def items(folder, content, **settings):
    """A feature by item id, of an item file beside the log."""
    log, path = written(folder, "log.csv", text()), written(folder, "items.csv", content)
    return log_files.feature_values(log, item_features=str(path), feature_columns=("category",), **settings)


def test_quotes_that_open_and_close_rows_apart(tmp_path):
    path = written(tmp_path, "l.csv", changed(line12='"Heroes', line30='Low"'))
    with pytest.raises(DataError, match="l.csv, line 12: a quote opens there and closes on line 30, and between them "
                                        "are 18 "
                                        "lines that look like rows, such as line 13: .*--quote=none.*--quote=double"):
        read(path)
    log = read(path, quote="none")
    assert log.rows == 40 and log.clicks["title"][10] == '"Heroes'
    assert read(path, quote="double").rows == 22  # who asks for it gets the one field of 19 lines
    titles = {2: '"Heroes', 8: 'Low"'}
    content = "item,title,category\n" + "".join(f"i{n},{titles.get(n, 't')},c{n % 3}\n" for n in range(11))
    with pytest.raises(DataError, match="items.csv, line 4: a quote opens there"):
        items(tmp_path, content)
    assert items(tmp_path, content, quote="none") == {f"i{item}": [f"c{item % 3}"] for item in range(11)}


def test_a_quote_in_the_middle_of_a_field_is_a_character(tmp_path, caplog):
    path = written(tmp_path, "l.csv", changed(line15='LP 12"', line20='a "b" c', line25='"x, ""y"""'))
    with caplog.at_level("INFO", "absl"):
        log = read(path)
    assert log.rows == 40 and log.clicks["title"].gather([13, 18, 23]).to_list() == ['LP 12"', 'a "b" c', 'x, "y"']
    assert "2 lines, the first is line 15" in caplog.text


@pytest.mark.parametrize("title, message", [
    ('"never closed', "line 20 opens a quote that is never closed"), ('"a" b', "line 20 has text behind a closing "
                                                                               "quote")])
def test_quotes_that_fit_nothing(tmp_path, title, message):
    path = written(tmp_path, "l.csv", changed(line20=title))
    with pytest.raises(DataError, match=f"{message}.*--quote=none"):
        read(path)
    assert read(path, quote="none").clicks["title"][18] == title


@pytest.mark.parametrize("title", ["a\nb", "a, b\nc, d", "a\n\nb", 'say "x"\nor, not, "y"', "a\r\nb", "one, two, three\nx"])
def test_fields_of_several_lines(tmp_path, title):
    out = io.StringIO()
    rows = [(f"u{u}", f"i{i}", t, title if number % 7 == 3 else "t") for number, (u, i, t) in enumerate(ROWS)]
    csv.writer(out, lineterminator="\n").writerows([("user", "item", "time", "title"), *rows])
    log = read(written(tmp_path, "l.csv", out.getvalue()))
    assert log.rows == 40 and log.clicks["title"].to_list() == [row[3] for row in rows]
    assert log_files.sequences(log) == log_files.expected()


def test_lines_of_rows_behind_fields_of_several_lines(tmp_path):
    path = written(tmp_path, "l.csv", changed(line5='"a\nb"', line9='"c\nd\ne"', line30='x,y'))
    with pytest.raises(DataError, match="line 33: .*more fields than columns"):
        read(path)


def test_prose_of_as_many_commas_as_a_row_is_a_field(tmp_path):
    """Ids are single words, so a line that begins with several is no row."""
    content = 'item,title,category\ni0,"Heroes\nand the Villains, part 2",c0\ni1,t,c1\n'
    assert items(tmp_path, content)["i0"] == ["c0"]
    with pytest.raises(DataError, match="line 2: a quote opens there"):
        items(tmp_path, content.replace("and the Villains, part 2", "Villains, part 2"))
    assert items(tmp_path, content.replace("and the Villains, part 2", "Villains, part 2"), quote="double")["i0"] == ["c0"]


def test_400_files_with_stray_quotes_lose_no_row_silently(tmp_path):
    """One to four quotes at any place: all rows are read, or counted as bad, or an error names a line or column."""
    rng, read_whole, refused = np.random.default_rng(0), 0, 0
    path = tmp_path / "l.csv"
    for _ in range(400):
        content = WITH_TITLES
        for place in rng.integers(len(content), size=rng.integers(1, 5)):
            content = content[:place] + '"' + content[place:]
        path.write_text(content)
        try:
            log = read(path, max_bad_rows=39)
        except DataError as error:
            assert "line" in str(error)
            refused += 1
        except UserError as error:  # a name in the header is another one
            assert "no column" in str(error)
            refused += 1
        else:
            assert log.rows == 40, content
            assert len(log.clicks) + log.bad_rows == 40
            read_whole += 1
    assert read_whole > 100 and refused > 50


@pytest.mark.parametrize("seed", range(4))
def test_any_table_that_csv_writes_is_read_back(tmp_path, seed):
    """Random fields of the characters that matter, of one line or several, against Python's own reader."""
    rng = np.random.default_rng(seed)
    marks = list('ab"", \n')
    field = lambda: "x" + "".join(rng.choice(marks, rng.integers(0, 6))).strip() + "x"
    rows = [(f"u{n % 7}", f"i{n % 5}", str(ROWS[0][2] + n), field()) for n in range(300)]
    out = io.StringIO()
    csv.writer(out, lineterminator="\n", quoting=[csv.QUOTE_MINIMAL, csv.QUOTE_ALL][seed % 2]).writerows(
        [("user", "item", "time", "title"), *rows])
    log = read(written(tmp_path, "l.csv", out.getvalue()), quote="double")
    assert log.clicks["title"].to_list() == [row[3] for row in rows]


def test_parts_with_quotes_are_counted_too(tmp_path):
    rows = WITH_TITLES.splitlines(keepends=True)
    written(tmp_path, "log/a.csv", "".join(rows[:20]).replace(",t\n", ',"t\nt"\n', 1))
    written(tmp_path, "log/b.csv", rows[0] + "".join(rows[20:]))
    log = read(tmp_path / "log")
    assert (log.rows, log.lines) == (40, 41) and log_files.sequences(log) == log_files.expected()
    written(tmp_path, "log/b.csv", rows[0] + "".join(rows[20:]).replace(",t\n", ',"t\n', 1).replace(",t\n", ',t"\n', 2))
    with pytest.raises(DataError, match="b.csv, line 2: a quote opens there"):
        read(tmp_path / "log")


def test_a_file_without_quotes_is_not_gone_through():
    assert quotes.check(b"a,b\n" * 5, b",", 2, "f", False, Room()) == quotes.Records()
