"""Pictures of an evaluation."""
import os

from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from clrec_tf.evaluation.report import MOST_POPULAR
from clrec_tf.system import atomic

HISTOGRAM_FILE = "degree_histogram.png"
_COLOURS = ("#9aa5b1", "#0b6e99", "#e07a3f", "#3d3d3d")  # truth, then models: apart in grey scale as well


def save_degree_histogram(workdir: str, result: dict, model_name: str = "model") -> str:
    """Draws where clicks and recommendations go by popularity of the item, after the paper's Figures 3 and 4.

    Args:
      workdir: folder of the run.
      result: of `report.evaluate_scorer` with `detailed`.
      model_name: for the legend.

    Returns:
      Path of the PNG, which appears under its name only when it is whole.
    """
    ours = next(name.split("/")[0] for name in result if name.startswith("degree_histogram@"))
    length = ours.split("@")[1]
    series = {"training clicks (truth)": "truth/degree_histogram/", f"{model_name}, top {length}": f"{ours}/full/",
              f"most popular, top {length}": f"{MOST_POPULAR}{ours}/full/"}
    return draw_degree_histogram(
        os.path.join(workdir, HISTOGRAM_FILE), {label: (result, prefix) for label, prefix in series.items()},
        f"Recommendations by popularity ({result['split']}, {result['users']:,} users, full ranking)")


def draw_degree_histogram(path: str, series: dict, title: str) -> str:
    """Draws up to four series of shares by bucket of popularity side by side, and returns the path of the PNG.

    Args:
      path: of the PNG.
      series: label -> (metrics, prefix of the names of its buckets).
      title: of the picture.
    """
    figure = Figure(figsize=(9, 4.5), dpi=150, layout="constrained")
    axes, width = figure.add_subplot(), 0.84 / len(series)
    for place, ((label, (result, prefix)), colour) in enumerate(zip(series.items(), _COLOURS)):
        totals = _buckets(result, prefix)
        shares = [total / max(sum(totals), 1) for total in totals]
        centres = [bucket + (place - (len(series) - 1) / 2) * width for bucket in range(len(shares))]
        axes.bar(centres, shares, width, label=label, color=colour)
    axes.set_xticks(range(len(totals)), [bucket_name(bucket) for bucket in range(len(totals))], fontsize=8)
    axes.set_xlabel("clicks of the item in training: from this count to below the next")
    axes.set_ylabel("share of clicks or recommendations")
    axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    axes.grid(axis="y", alpha=0.3)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    axes.set_title(title)
    return save_png(figure, path)


def _buckets(result, prefix):
    totals = {int(name[len(prefix):]): total for name, total in result.items() if name.startswith(prefix)}
    return [totals[bucket] for bucket in sorted(totals)]


def bucket_name(bucket):
    """Smallest count that a bucket of `metrics.degree_histogram` holds, shortened."""
    low = 2**(bucket - 1)
    if bucket <= 1:
        return str(bucket)
    for size, unit in ((2**20, "M"), (2**10, "k")):
        if low >= 8 * size:
            return f"{low // size}{unit}+"
    return f"{low}+"


def save_png(figure: Figure, path: str) -> str:
    """Writes the picture under another name and renames it; returns its path."""
    with atomic.new_file(path) as name:
        figure.savefig(name, format="png")
    return path
