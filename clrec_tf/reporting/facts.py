"""Tables of what runs are: what they were made from, the settings that differ, one user's intents."""
from typing import Any
from typing import Optional
from typing import Sequence

from clrec_tf.evaluation.intent_example import IntentExample
from clrec_tf.evaluation.intent_example import ShownItem
from clrec_tf.reporting.markup import Markup
from clrec_tf.reporting.markup import tag
from clrec_tf.reporting.pictures import series
from clrec_tf.reporting.runs import number
from clrec_tf.reporting.runs import Run
from clrec_tf.reporting.tables import breakable
from clrec_tf.reporting.tables import figure_text
from clrec_tf.reporting.tables import more
from clrec_tf.reporting.tables import setting_text
from clrec_tf.reporting.tables import table
from clrec_tf.training.run_config import default_settings
from clrec_tf.training.run_config import settings_in_force

_SHORT = 12  # letters of a hash


def provenance(runs: Sequence[Run]) -> Markup:
    """Data set, seed, checkpoint and versions."""
    versions = [run.config.get("versions") if isinstance(run.config.get("versions"), dict) else {} for run in runs]
    rows = [("folder", *(breakable(run.folder) for run in runs)),
            ("data set", *(breakable(run.setting("paths", "data_dir")) for run in runs)),
            ("schema of the data", *(run.config["schema_hash"][:_SHORT] for run in runs)),
            ("seed", *(setting_text(run.setting("paths", "seed")) for run in runs)),
            ("step evaluated", *(figure_text(run.metrics.get("step")) for run in runs)),
            ("checkpoint", *(_text(run.metrics.get("checkpoint_hash"), _SHORT) for run in runs)),
            ("part evaluated", *(_text(run.metrics.get("split")) for run in runs)),
            ("users evaluated", *(figure_text(run.metrics.get("users")) for run in runs)),
            ("items", *(figure_text(run.metrics.get("items")) for run in runs)),
            *((name, *(_text(one.get(name)) or None for one in versions))
              for name in dict.fromkeys(name for one in versions for name in one))]
    return table("What the figures are of", ("", *(run.name for run in runs)), rows, numbers=False)


def _text(value: Any, most: Optional[int] = None) -> Optional[str]:
    return None if value is None else str(value)[:most]


def settings(runs: Sequence[Run]) -> list[Markup]:
    """The settings of model, loss and training that differ among runs, or, of one run, from the defaults."""
    given, defaults = [settings_in_force(run.config) for run in runs], default_settings()
    names = list(dict.fromkeys(name for values in given for name in values))
    unequal = [name for name in names if any(values.get(name) != given[0].get(name) for values in given)]
    changed = [name for name in names if name not in unequal and given[0].get(name) != defaults.get(name)]
    head = ("setting", *(run.name for run in runs))
    shown = []
    if len(runs) > 1:
        rows = [(tag("code", breakable(f"--{name}")), *(breakable(setting_text(values.get(name))) for values in given))
                for name in unequal]
        shown = [table("Settings that differ", head, rows, numbers=False) if rows else
                 tag("p", "All settings of model, loss and training are alike.")]
    alike = table("Settings that are not the defaults" + (", alike in all runs" if len(runs) > 1 else ""),
                  ("setting", "value", "default"),
                  [(tag("code", breakable(f"--{name}")), breakable(setting_text(given[0][name])),
                    breakable(setting_text(defaults.get(name))))
                   for name in changed], numbers=False)
    return shown + ([more("Other settings than the defaults, alike in all runs", alike)] if shown else [alike])


def intents(runs: Sequence[Run]) -> list[Markup]:
    """One user's clicks, and what the heaviest vectors find, of each run that wrote it; nothing of models that have
    one vector per user."""
    absent = [run.name for run in runs if run.example is None and number(run.metrics.get("intents_searched"))]
    missing = [tag("p", f"An example is missing of {', '.join(absent)}: evaluate again to have one.",
                   class_="missing")] if absent else []
    return [_example(run.name, run.example) for run in runs if run.example] + missing


def _example(name, example: IntentExample) -> Markup:
    colours = {vector.number: place for place, vector in enumerate(example.vectors)}
    boxes = [_box("Clicks, latest first", f"{len(example.history)} of {example.clicks}", example.history, colours,
                  example)]
    boxes += [_box(f"Intent {vector.number}", _weight(vector.weight), vector.items, colours, example, vector.number)
              for vector in example.vectors]
    return tag("section", tag("h3", f"{name}: user {example.user_id}"), tag("p", "Clicked next: ", tag("b", _name(
        example.next_click)), f". The number before an item is the intent that its {example.feature} routes it to."),
               tag("div", boxes, class_="boxes"))


def _box(title, remark, items: Sequence[ShownItem], colours, example: IntentExample, number_=None):
    of = f" {series(colours[number_])}" if number_ in colours else ""
    return tag("div", tag("h4", title, " ", tag("small", remark)), tag("ol", [
        tag("li", tag("span", "–" if item.intent is None else item.intent, class_=_chip(item, colours)), tag(
            "span", tag("b", _name(item)) if item == example.next_click else _name(item),
            tag("small", item.category) if item.category else None)) for item in items]), class_=f"box{of}")


def _chip(item, colours):
    return f"chip {series(colours[item.intent])}" if item.intent in colours else "chip"


def _name(item: ShownItem) -> str:
    return item.title or item.original_id or "(without a title)"


def _weight(value):
    return "" if number(value) is None else f"weight {value:.3f}" if value >= 0.0005 else "weight < 0.001"
