"""A reported table as Markdown, whose text has lines as short as those of this project's pages."""
import textwrap

LEGEND = ("a metric's name states its candidates. Brackets: least and largest of the seeds. order: of the pairs with "
          "other rows, how many have the paper's order.")


def markdown(report: dict) -> str:
    """The table of `report.report`: a column of ours for each metric, and where the paper has figures its own, the
    ratio of ours to it, and how many pairs with other rows have the paper's order."""
    head, cells = ["row"], {name: [name] for name in report["columns"][0]["rows"]}
    for column in report["columns"]:
        rows = column["rows"]
        published = any("paper" in row for row in rows.values())
        ordered = bool(column["pairs"])
        head += [f"`{column['metric']}`: paper"] * published + [f"`{column['metric']}`" if not published else "ours"]
        head += ["ours / paper"] * published + ["order"] * ordered
        for name, row in rows.items():
            digits = column["digits"]
            cells[name] += [_number(row["paper"], digits) if "paper" in row else ""] * published
            cells[name].append(_ours(row, digits))
            cells[name] += [f"{row['ratio']:.2f}" if "ratio" in row else ""] * published
            cells[name] += [f"{row['agreeing']} of {row['pairs']}" if "pairs" in row else ""] * ordered
    lines = [f"### {report['table']}: {report['title']}", "", _wrapped(report["says"]), "",
             _wrapped(f"Data: {report['data_description']} (`{report['data']}`); {LEGEND}"), "",
             _line(head), _line(["---"] * len(head)), *map(_line, cells.values()), ""]
    said = []
    for column in report["columns"]:
        if column["pairs"]:
            said.append(f"`{column['metric']}`: {column['agreeing']} of {column['pairs']} pairs of rows have the "
                        "paper's order.")
        said += column["differences"]
    said += [f"Not run: {', '.join(report['not_run'])}."] if report["not_run"] else []
    return "\n".join([*lines, *(_wrapped(f"* {sentence}") for sentence in said)]) + "\n"


def _wrapped(text):
    indent = "  " if text.startswith("* ") else ""
    # A line that begins with a plus, as in names of rows, would be an entry of a list.
    lines = textwrap.wrap(text.replace(" + ", "\0+ "), 120, subsequent_indent=indent, break_long_words=False,
                          break_on_hyphens=False)
    return "\n".join(lines).replace("\0", " ")


def _ours(row, digits):
    if "mean" not in row:
        return ""
    mean = _number(row["mean"], digits)
    if row["seeds"] < 2:
        return mean
    return f"{mean} ({_number(row['low'], digits)}–{_number(row['high'], digits)}; {row['seeds']} seeds)"


def _number(value, digits):
    """Fixed decimals without the zero before the point, as on this project's pages; whole numbers by thousands."""
    text = f"{value:,.{digits}f}"
    return text[1:] if text.startswith("0.") else text


def _line(cells):
    return f"| {' | '.join(cells)} |"
