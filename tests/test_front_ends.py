"""The tests that are left out with one TVM are those that it cannot change, or that the other one runs."""

from front_ends import TESTS, knows_tvm, needs_relay


def test_a_file_knows_tvm_by_its_imports_and_by_those_of_its_helpers():
    assert knows_tvm(TESTS / "frontend/test_same_graphs.py")
    assert knows_tvm(TESTS / "hal/test_new_hal.py")  # imports the whole package
    assert knows_tvm(TESTS / "test_layer_by_layer.py")  # imports a benchmark that imports TVM
    assert knows_tvm(TESTS / "test_notebooks.py")  # runs notebooks in processes of their own
    assert knows_tvm(TESTS / "fuzz/test_fuzz.py")  # imports its cases where it needs them
    assert not knows_tvm(TESTS / "hal/test_hal_kit.py")
    assert not knows_tvm(TESTS / "mesh/test_pipelines.py")


def test_files_of_the_front_ends_and_patterns_know_tvm():
    files = [*(TESTS / "frontend").rglob("test_*.py"), *(TESTS / "patterns").rglob("test_*.py")]
    assert all(map(knows_tvm, files)), [path.name for path in files if not knows_tvm(path)]


def test_files_that_relax_cannot_run_need_relay_and_what_compares_both_is_for_both():
    assert needs_relay(TESTS / "patterns/test_qnn_conv2d.py")
    assert needs_relay(TESTS / "test_polling.py")  # its samples are of Relay
    assert needs_relay(TESTS / "frontend/test_same_graphs.py")
    assert not needs_relay(TESTS / "hal/test_new_hal.py")
    assert not needs_relay(TESTS / "frontend/relax/test_relax_onnx.py")
    assert not needs_relay(TESTS / "mesh/test_pipelines.py")
