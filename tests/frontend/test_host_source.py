"""Constants of TVM's C in the narrowest type: reads keep value and type, anything else keeps the constant."""

import subprocess

import pytest

from byoc_hw.frontend.relay.host_source import host_source

HEAD = 'static const {type} __attribute__((section(".rodata.tvm"), aligned(16))) {name}[{extent}] = {{\n'


def constant(name, values, kind="int16_t"):
    elements = ", ".join(f"{value:+#06x}" for value in values)
    return HEAD.format(type=kind, name=name, extent=len(values)) + f"    {elements}\n}};\n"


def function(name, body):
    return f"TVM_DLL int32_t {name}(int32_t* p0, uint8_t* arena_0_var) {{\n{body}}}\n"


def source_of(constants, body):
    return host_source("".join(constants) + function("f", body), "net")


READ = "  p0[0] = (p0[1] + ((int32_t)((int16_t*)weights)[(p0[2] * 3)]));\n  return 0;\n"


@pytest.mark.parametrize(
    ("values", "kind", "stored", "nbytes"),
    [
        ([-128, 127, 0], "int16_t", "int8_t", 3),
        ([-129, 127, 0], "int16_t", "int16_t", 6),
        ([128], "int32_t", "int16_t", 2),
        ([-(2**31)], "int64_t", "int32_t", 4),
        ([2**31], "int64_t", "int64_t", 8),
        ([5], "uint16_t", "uint16_t", 2),
        ([-5], "int8_t", "int8_t", 1),
    ],
)
def test_stores_the_narrowest_type_that_holds_the_values(values, kind, stored, nbytes):
    text, total = source_of([constant("weights", values, kind)], READ.replace("int16_t*", f"{kind}*"))
    assert f"static const {stored} __attribute__" in text
    assert total == nbytes
    assert ("(const int" in text) == (stored != kind)


def test_a_read_is_cast_back_to_the_type_that_tvm_gave_it():
    text, _ = source_of([constant("weights", [1, 2, -3])], READ)
    assert "((int32_t)(int16_t)((const int8_t*)weights)[(p0[2] * 3)])" in text


@pytest.mark.parametrize(
    "body",
    [
        "  void* q = (&(((int16_t*)weights)[0]));\n",
        "  q(weights);\n",
        "  ((int16_t*)weights)[1] = 3;\n",
        "  p0[0] = ((int32_t*)weights)[0];\n",
        f"{READ}  void* q = &weights;\n",
    ],
)
def test_leaves_a_constant_with_any_other_use_as_it_is(body):
    text, total = source_of([constant("weights", [1, 2, -3])], body)
    assert "static const int16_t" in text
    assert body in text
    assert total == 6


def test_leaves_floats_and_unusual_spellings_as_they_are():
    floats = "static const float table[2] = {\n    0x1p+0f, 2.5e+00f\n};\n"
    least = "static const int64_t least[1] = {\n    (-0x7fffffffffffffffLL - 1)\n};\n"
    text, total = source_of([floats, least], "  p0[0] = ((float*)table)[0] + ((int64_t*)least)[0];\n")
    assert floats in text
    assert least in text
    assert total == 16


def test_arithmetic_on_narrowed_constants_overflows_no_earlier(tmp_path):
    wide = [2**20, 2**21]
    body = "  p0[0] = ((int32_t)((((int64_t*)a)[0] * ((int64_t*)a)[1]) >> ((int64_t)20)));\n  return 0;\n"
    text, _ = source_of([constant("a", wide, "int64_t")], body)
    assert "static const int32_t" in text
    main = "int main(void) { int32_t r[1]; f(r, 0); return r[0] != 1 << 21; }\n"
    (tmp_path / "main.c").write_text(text + main)
    command = ["gcc", "-fsanitize=undefined", "-fno-sanitize-recover=all", tmp_path / "main.c", "-o", tmp_path / "main"]
    subprocess.run(command, check=True)
    subprocess.run([tmp_path / "main"], check=True)


def test_equal_constants_are_stored_once():
    constants = [constant("a", [1, 2, -3]), constant("b", [1, 2, -4]), constant("weights", [1, 2, -3])]
    text, total = source_of(constants, READ)
    assert "((int32_t)(int16_t)((const int8_t*)a)[(p0[2] * 3)])" in text
    assert text.count("static const") == 2
    assert total == 6
