"""Names that differ: which one is kept, and what the others get."""

from byoc_hw.names import distinct


def test_the_first_of_equal_names_is_kept():
    assert distinct(["a", "b", "a", "a"]) == ["a", "b", "a_2", "a_3"]


def test_a_suffix_that_is_taken_is_passed_over():
    assert distinct(["a", "a", "a_2"]) == ["a", "a_2", "a_2_2"]
    assert distinct(["a"], taken=["a", "a_2"]) == ["a_3"]


def test_names_may_be_equal_in_another_case():
    assert distinct(["A", "a"], same=str.lower) == ["A", "a_2"]


def test_a_suffix_keeps_to_the_longest_name():
    assert distinct(["abcd", "abcd"], longest=4) == ["abcd", "ab_2"]
