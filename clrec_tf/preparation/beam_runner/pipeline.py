"""The pipeline: from files to a data folder, by the functions of the modules beside this one.

Each step reads what earlier ones settled of the whole log as a side input; clicks pass from step to step and are never
gathered. What is held in one place are users and items with their counts, and what the manifest names; of impressions
the pairs of numbers that are written.
"""
import json
import os

import apache_beam as beam

from clrec_tf.data import schema as schema_lib
from clrec_tf.preparation.beam_runner import counting
from clrec_tf.preparation.beam_runner import exposures
from clrec_tf.preparation.beam_runner import grouping
from clrec_tf.preparation.beam_runner import reading
from clrec_tf.preparation.beam_runner import writing
from clrec_tf.preparation.beam_runner.job import Job
from clrec_tf.preparation.beam_runner.job import Refusal
from clrec_tf.preparation.beam_runner.steps import settle
from clrec_tf.preparation.beam_runner.steps import step
from clrec_tf.system import atomic

RESULT = "result.json"  # in the job's folder: the report, or a refusal


def build(pipeline: beam.Pipeline, job: Job) -> None:
    """Adds all steps, of which the last writes `RESULT`."""
    rows, facts = step(_files(pipeline, "Files", job), "Read", job, reading.read_file)
    form = settle(facts, "Settle forms", job, reading.settle_form)
    rows, facts = step(rows, "Check", job, reading.check_rows, form)
    checked = settle(facts, "Settle rows", job, reading.settle_rows, form)
    rows, facts = step(rows | "Group users" >> beam.GroupByKey(), "Filter", job, grouping.group, checked)
    numbers = settle(facts, "Settle numbers", job, grouping.settle_numbers, checked)
    groups, facts = step(rows, "Count", job, counting.count, numbers)
    counted = settle(facts, "Settle tables", job, counting.settle_tables, numbers)
    _, facts = step(groups, "Measure", job, writing.sizes_of, counted)
    days, *impressions = _impressions(pipeline, job, groups, counted) if job.impressions else (None,)
    dealt = settle(facts, "Settle places", job, writing.settle_places, counted, *impressions)
    if not job.settings.dry_run:
        found, failed = step(groups, "Make records", job, writing.records, counted, dealt)
        _, facts = step(found | "Group shards" >> beam.GroupByKey(), "Write shards", job, writing.write, dealt)
        written = [failed, facts]
        if days is not None:
            days = days | "Group days" >> beam.GroupByKey()
            written.append(step(days, "Write impressions", job, exposures.write, dealt)[1])
        finished = settle(written | beam.Flatten(), "Finish", job, writing.finish, dealt)
    else:
        finished = dealt
    _ = finished | "Write result" >> beam.Map(write_result, job.folder)


def _files(pipeline: beam.Pipeline, name: str, job: Job):
    """Numbers of a job's files."""
    numbers = [(number,) for number in range(len(job.files))]
    return pipeline | name >> beam.Create(numbers) | f"{name}: deal" >> beam.Reshuffle()


def _impressions(pipeline: beam.Pipeline, job: Job, groups, counted) -> tuple:
    """Steps of the impression log: (day, its impressions), and what the report says of them."""
    job = exposures.job_of(job)
    rows, facts = step(_files(pipeline, "Impression files", job), "Read impressions", job, exposures.read_file)
    form = settle(facts, "Settle impression forms", job, exposures.settle_form)
    rows, facts = step(rows, "Check impressions", job, exposures.check_rows, form)
    judged = settle(facts, "Settle impression rows", job, exposures.settle_rows, form)
    clicks = groups | "Training clicks" >> beam.Map(exposures.trained_on)
    both = {exposures.CLICKS: clicks, exposures.SHOWN: rows} | "Group impressions" >> beam.CoGroupByKey()
    days, facts = step(both, "Join impressions", job, exposures.join, counted, judged)
    return days, settle(facts, "Settle impressions", job, exposures.settle, counted, judged)


def write_result(found, folder: str) -> None:
    """Writes what came out of the pipeline: the report and the schema, or a refusal."""
    if isinstance(found, Refusal):
        result = dict(kind=found.kind, text=found.text)
    else:
        dataset = found.dataset if isinstance(found, writing.Dealt) else found
        schema_lib.save_schema(folder, dataset.schema)
        result = dict(report=dataset.report)
    with atomic.new_file(os.path.join(folder, RESULT)) as path, open(path, "w", encoding="utf-8") as file:
        json.dump(result, file)
