"""Models of others in the DAG: planned beside ours, each on the tasks that it can be scored on."""

import pytest

pytestmark = pytest.mark.workflow

COMMIT = "0123456789abcdef0123456789abcdef01234567"


def test_models_of_others_are_planned_beside_ours(fresh):
    value = fresh.config
    value["evaluate"]["tasks"] = [{"name": "wikitext"}, {"name": "corpus_validation"}]
    fresh.configure(value)
    without = fresh.planned()
    hub = {"repo": "a/model", "revision": COMMIT, "label": "Other"}
    value["references"] = {
        "other": {"kind": "hub"} | hub,
        "theirs": {"kind": "import", "interface": "binary9"} | hub,
    }
    fresh.configure(value)
    planned = fresh.planned()
    more = {name: count - without.get(name, 0) for name, count in planned.items() if count != without.get(name)}
    # the one of another tokenizer is not scored on the corpus' own documents; the imported one is, and is validated
    assert more == {"reference": 2, "validate_imported": 1, "evaluate": 3, "others": 1}

    value["references"]["theirs"]["revision"] = "main"
    fresh.configure(value)
    output = fresh.snakemake("--dry-run", code=2)
    assert "references.theirs.revision" in output and "Traceback" not in output
