"""Contenders as rows, and the reasons of those without a plan."""

from diaulos.planning.explanation.comparison import Standing, compare
from diaulos.reporting.comparison import comparison_documents, reasons
from tests.planning.problems import chain, option, problem

MIXED = problem(
    chain(*[[option(seconds=2.0, fixed=1.0), option("split", tensor_parallel=2)]] * 3),
    devices=2,
    memory=1.0,
    microbatches=2,
)


def test_equal_reasons_are_told_once() -> None:
    """Those who share a reason share a line."""
    standings = [
        Standing(name=name, result=None, reason=reason, ratio=None)
        for name, reason in (("a", "too small"), ("b", "unknown"), ("c", "too small"))
    ]
    assert reasons(standings) == ["no plan for a; c: too small", "no plan for b: unknown"]


def test_documents_are_of_both_kinds() -> None:
    """With a plan its figures, without one the reason, each with its name."""
    documents = comparison_documents(compare(MIXED))
    assert {document["feasible"] for document in documents} == {True, False}
    for document in documents:
        assert ("reason" in document) != document["feasible"]
        assert ("fullest_device_bytes" in document) == document["feasible"]
