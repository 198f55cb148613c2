"""What a job asks for where the config says null."""

import subprocess
import sys

import pytest

from tokencodes import config
from tokencodes.model import accounting
from tokencodes.planning import resources
from tokencodes.planning.spec import StageResources

MIB = 2**20


@pytest.fixture(scope="module")
def paper(root):
    return config.load(root / "config/paper.yaml")


def test_the_largest_interface_is_counted_as_the_model_itself_is(paper, tiny):
    for settings in (paper, tiny.config()):
        counts = [accounting.count(interface, settings.model).trainable for interface in settings.interfaces.values()]
        assert resources.parameters(settings.model) == max(counts)


def test_a_training_job_has_room_for_its_ranks_and_a_checkpoint(paper):
    """On the host: each rank's model before it moves to its GPU, and weights and moments gathered to be written."""
    weights = 4 * resources.parameters(paper.model)
    request = resources.filled(paper)
    assert request.train.mem_mb * MIB > 5 * weights
    on_cpu = paper.model_copy(update={"train": paper.train.model_copy(update={"device": "cpu"})})
    assert resources.filled(on_cpu).train.mem_mb * MIB > 2 * 4 * weights + 3 * weights  # four copies per rank
    assert request.export.mem_mb * MIB > 2 * weights and request.evaluate.mem_mb * MIB > weights


def test_what_is_stated_stands(tiny):
    stated = {"cpus": 3, "mem_mb": 5, "runtime_min": 7, "gpus": 1}
    stages = {stage: stated for stage in StageResources.model_fields}
    assert resources.filled(tiny.config(resources=stages)).model_dump() == stages


def test_nothing_is_left_open_and_a_larger_model_or_shard_never_asks_for_less(paper, tiny):
    small, large = (resources.filled(settings) for settings in (tiny.config(), paper))
    for stage in StageResources.model_fields:
        assert getattr(small, stage).mem_mb <= getattr(large, stage).mem_mb
        assert getattr(small, stage).runtime_min >= resources.MIN_RUNTIME_MIN
    fewer = paper.data.source.model_copy(update={"n_shards": 10})
    larger_shards = paper.model_copy(update={"data": paper.data.model_copy(update={"source": fewer})})
    for stage in ("download", "prepare"):
        assert getattr(resources.filled(larger_shards), stage).runtime_min > getattr(large, stage).runtime_min


def test_preparing_grows_with_the_documents_of_a_shard_not_with_its_bytes(paper):
    """What is read and encoded at a time is bounded; ids and keys are kept until the shard is written."""

    def request(**expected):
        stated = paper.data.expected.model_copy(update=expected)
        data = paper.data.model_copy(update={"expected": stated})
        return resources.filled(paper.model_copy(update={"data": data})).prepare.mem_mb

    documents = paper.data.expected.documents
    assert request(tokens=10 * paper.data.expected.tokens) == request()
    more = (request(documents=11 * documents) - request(documents=documents)) * MIB
    assert more >= 10 * documents / paper.data.source.n_shards * resources.DOCUMENT_BYTES
    assert request(documents=None) > request(documents=None, tokens=None) == resources.PROCESS_MB


def test_a_training_job_outlasts_its_own_budget(tiny):
    assert resources.filled(tiny.config(train={"time_budget_min": 100.5})).train.runtime_min > 101


def test_every_snakemake_of_a_run_reads_it_without_torch():
    code = "import sys; from tokencodes.planning import resources; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
