"""How a step's function runs in a pipeline: errors become refusals, which stop what comes after and reach the user."""
from typing import Callable

import apache_beam as beam

from clrec_tf.errors import UserError
from clrec_tf.preparation import data_folder
from clrec_tf.preparation.beam_runner.facts import Merge
from clrec_tf.preparation.beam_runner.job import Job
from clrec_tf.preparation.beam_runner.job import refusal
from clrec_tf.preparation.beam_runner.job import Refusal

FACTS = "facts"
_REFUSALS = "list refusals"


class Fact(tuple):
    """A name and a value, of `facts.merged`: what a step yields beside its elements."""

    def __new__(cls, name, value):
        return super().__new__(cls, (name, value))


class Step(beam.DoFn):
    """Runs a function on each element.

    Args:
      function: (job, element, what was settled before) -> elements and `Fact`s.
      job: see there.
    """

    def __init__(self, function: Callable, job: Job):
        self._function, self._job = function, job

    def process(self, element, *settled):
        if any(isinstance(one, Refusal) for one in settled):
            return
        try:
            with data_folder.write_errors(self._job.data_dir):
                for found in self._function(self._job, element, *settled):
                    yield beam.pvalue.TaggedOutput(FACTS, tuple(found)) if isinstance(found, Fact) else found
        except UserError as error:
            place = element[0] if isinstance(element[0], int) else 0
            yield beam.pvalue.TaggedOutput(FACTS, (_REFUSALS, [refusal(error, place)]))


class Settle(beam.DoFn):
    """Makes one value of the facts of all parts, or passes a refusal on.

    Args:
      function: (job, facts by name, what was settled before) -> what is settled.
      job: see there.
    """

    def __init__(self, function: Callable, job: Job):
        self._function, self._job = function, job

    def process(self, element, *settled):
        refused = [one for one in settled if isinstance(one, Refusal)] or sorted(
            element.get(_REFUSALS, []), key=lambda one: one.place)
        if refused:
            yield refused[0]
            return
        try:
            with data_folder.write_errors(self._job.data_dir):
                yield self._function(self._job, element, *settled)
        except UserError as error:
            yield refusal(error)


def step(elements, name: str, job: Job, function: Callable, *settled):
    """Elements and facts of a step. Args: see `Step`; `name`: of the step; `settled`: collections of one value."""
    sides = [beam.pvalue.AsSingleton(one) for one in settled]
    found = elements | name >> beam.ParDo(Step(function, job), *sides).with_outputs(FACTS, main="elements")
    return found["elements"], found[FACTS]


def settle(facts, name: str, job: Job, function: Callable, *settled):
    """Collection of the one value that a function makes of facts. Args: see `Settle` and `step`."""
    sides = [beam.pvalue.AsSingleton(one) for one in settled]
    # Without defaults there would be no value where there are no facts.
    return (facts | f"{name}: merge" >> beam.CombineGlobally(Merge())
            | name >> beam.ParDo(Settle(function, job), *sides))
