"""`python -m byoc_hw hal-test` and `new-hal`."""

import re

import pytest

from byoc_hw import __main__ as cli
from byoc_hw.run.new_hal import new_hal


@pytest.mark.slow
def test_hal_test_prints_a_line_for_each_check(capfd):
    assert cli.main(["hal-test", "--accelerator", "SMALL", "--cflags=-O0"]) == 0
    out, error = capfd.readouterr()
    assert error == ""
    assert "ok hwlib_hal_copy_2d: main memory to local activations, dense rows\n" in out
    assert re.search(r"^\d+ checks, 0 failed$", out, re.M)


def test_new_hal_is_one_that_hal_test_passes(tmp_path, capfd):
    assert cli.main(["new-hal", str(tmp_path / "hal"), "--accelerator", "SMALL"]) == 0
    assert f"python -m byoc_hw hal-test --hal {tmp_path / 'hal'} --accelerator SMALL" in capfd.readouterr().out
    assert cli.main(["hal-test", "--hal", str(tmp_path / "hal"), "--accelerator", "SMALL", "--cflags=-O1"]) == 0


def test_new_hal_over_registers_has_the_device_in_software(tmp_path, capfd):
    assert cli.main(["new-hal", str(tmp_path / "hal"), "--registers", "0x40000000"]) == 0
    assert "#define CHIP_REGISTERS 0x40000000u\n" in (tmp_path / "hal" / "chip_numbers.h").read_text()
    assert f"hal-test --hal {tmp_path / 'hal' / 'model'} --accelerator REFERENCE" in capfd.readouterr().out
    with pytest.raises(SystemExit, match="2"):
        cli.main(["new-hal", str(tmp_path / "other"), "--registers", "here"])
    assert "argument --registers: is a number, such as 0x40000000: got 'here'" in capfd.readouterr().err


def test_new_hal_leaves_a_directory_with_files_alone(tmp_path, ended):
    (tmp_path / "mine.c").write_text("")
    code, error = ended("new-hal", tmp_path)
    assert code == 2
    assert "a new HAL goes into a directory that is new or empty" in error
    assert [path.name for path in tmp_path.iterdir()] == ["mine.c"]


@pytest.mark.slow
def test_hal_test_names_the_functions_that_fail(tmp_path, capfd):
    new_hal(tmp_path)
    jobs = (tmp_path / "chip_jobs.c").read_text()
    (tmp_path / "chip_jobs.c").write_text(jobs.replace("ifm == NULL ? layer->ifm_zero_point", "ifm == NULL ? 0"))
    assert cli.main(["hal-test", "--hal", str(tmp_path), "--cflags=-O1"]) == 1
    out, error = capfd.readouterr()
    assert "FAILED hwlib_hal_job_start: conv2d, upward, the most padding: byte" in out
    assert error == "byoc_hw: error: the HAL fails in hwlib_hal_job_start\n"


def test_hal_test_writes_the_kit_for_a_chip(tmp_path, capfd):
    assert cli.main(["hal-test", "--write", str(tmp_path / "kit")]) == 0
    assert {"hal_kit.h", "hal_kit_config.h", "hwlib_hal.h"} <= {path.name for path in (tmp_path / "kit").iterdir()}
    assert "hal_kit_print" in capfd.readouterr().out


def test_hal_test_without_compiler_or_sources(ended, tmp_path):
    code, error = ended("hal-test", "--cc", "no-such-gcc")
    assert (code, "no-such-gcc is not installed" in error) == (3, True)
    code, error = ended("hal-test", "--hal", tmp_path)
    assert (code, "hal is a directory with C files" in error) == (2, True)
