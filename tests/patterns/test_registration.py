"""The pattern table: what registering promises, the order in which forms are tried, and the files themselves."""

import importlib
import re
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import byoc_hw.patterns
import pattern_checks
import pytest
from pattern_checks import compare, composites, reasons
from relay_samples import Add, Conv, Pool, module, variable
from tvm import relay
from tvm.relay.dataflow_pattern import is_op, wildcard
from tvm.relay.op.contrib.register import get_pattern_table

from byoc_hw import REFERENCE, Check, Form, InvalidInput, PatternError, limit, pattern_table, register_pattern
from byoc_hw.frontend import pattern_files
from byoc_hw.frontend.relay import read, table
from byoc_hw.frontend.relay.reference import Reference
from byoc_hw.graph import Pool2d
from byoc_hw.pattern import Rule, patterns, unregister_pattern

# The patterns of these tests take relu, of which a table would be made otherwise.
_KINDS = {kind: limits for kind, limits in REFERENCE.limits.items() if kind != "lookup"}
NO_TABLE = f"lookup: layer kind is one of {', '.join(_KINDS)}: got lookup"
WITHOUT_TABLES = replace(REFERENCE, label="WITHOUT_TABLES", limits=_KINDS)
accepted, declined, partitioned = (
    partial(check, accelerator=WITHOUT_TABLES)
    for check in (pattern_checks.accepted, pattern_checks.declined, pattern_checks.partitioned)
)

FOLDER = Path(byoc_hw.patterns.__file__).parent
FILES = sorted(path for path in FOLDER.glob("*.py") if path.name != "__init__.py")
NAMES = [path.stem for path in FILES]


@pytest.fixture
def temporarily():
    """Register patterns for one test."""
    pattern_files.load_patterns()
    before = {pattern.name for pattern in patterns()}
    yield register_pattern
    for pattern in patterns():
        if pattern.name not in before:
            unregister_pattern(pattern.name)


def relu_form():
    return Form(is_op("nn.relu")(wildcard()), anchor="nn.relu")


def relu_layer(match):
    """A relu is a maximum over one element, clipped at 0."""
    name = read.layer_name(match.root)
    return Pool2d(
        name=name,
        source=match.sources,
        ifm=read.activation(match.inputs[0], f"{name}_ifm"),
        ofm=read.activation(match.root, name),
        mode="max",
        act_min=0,
    )


def relu_module(shape=(1, 2, 3, 4)):
    x = variable(shape)
    return module(relay.nn.relu(x), x)


# ---------------------------------------------------------------- names


def test_a_duplicate_name_fails():
    pattern_files.load_patterns()
    with pytest.raises(PatternError, match=r"^pattern 'qnn_add' is registered twice$"):
        register_pattern("qnn_add", relu_form(), parse=relu_layer)


def test_a_name_is_an_identifier():
    with pytest.raises(PatternError, match=r"^pattern name is an identifier: got 'my-relu'$"):
        register_pattern("my-relu", relu_form(), parse=relu_layer)


def test_a_pattern_has_a_form():
    with pytest.raises(PatternError, match=r"^pattern 'relu' has at least one form: got none$"):
        register_pattern("relu", [], parse=relu_layer)


def test_only_what_is_registered_can_be_unregistered():
    with pytest.raises(PatternError, match=r"^pattern 'relu' is not registered$"):
        unregister_pattern("relu")


# ---------------------------------------------------------------- the live table


def table_names(entries):
    return {name for name, _, _ in entries}


def test_a_pattern_that_is_registered_later_takes_part(temporarily):
    ours, tvms = pattern_table("hwlib"), get_pattern_table("hwlib")
    assert ours is tvms
    length = len(ours)
    assert "hwlib.relu" not in table_names(ours)
    temporarily("relu", relu_form(), parse=relu_layer)
    assert "hwlib.relu" in table_names(ours)
    assert "hwlib.relu" in {tvms[index][0] for index in range(len(tvms))}
    assert len(ours) == length + 1
    assert accepted(relu_module(), "relu").name == "nn.relu_1"
    unregister_pattern("relu")
    assert "hwlib.relu" not in table_names(tvms)
    assert composites(partitioned(relu_module())) == []


def test_what_a_registered_pattern_describes_is_what_runs(temporarily):
    temporarily("relu", relu_form(), parse=relu_layer)
    mod = relu_module()
    compare(mod, byoc_hw.build(partitioned(mod)), Reference(mod))


def test_the_table_works_with_tvms_own_merge_composite(temporarily):
    temporarily("relu", relu_form(), parse=relu_layer)
    mod = relay.transform.InferType()(relu_module())
    merged = relay.transform.MergeComposite(get_pattern_table("hwlib"))(mod)
    assert merged["main"].body.op.attrs["Composite"] == "hwlib.relu"


def test_no_table_for_a_compiler_that_nobody_has():
    with pytest.raises(InvalidInput, match="nobodys"):
        pattern_table("nobodys")


def test_every_composite_has_the_compilers_prefix():
    assert {name.partition(".")[0] for name in table_names(pattern_table("hwlib"))} == {"hwlib"}


# ---------------------------------------------------------------- limits


@limit("the last extent is even")
def even(layer):
    extent = layer.ifm.shape[-1]
    return Check(extent, extent % 2 == 0)


@limit("the first extent is one")
def one(layer):
    return Check(layer.ifm.shape[0], layer.ifm.shape[0] == 1)


def test_a_limits_text_is_the_message(temporarily):
    assert isinstance(even, Rule)
    temporarily("relu", relu_form(), parse=relu_layer, limits=[even, one])
    assert accepted(relu_module((1, 2, 3, 4)), "relu")
    declined(relu_module((1, 2, 3, 5)), f"relu: {even.text}: got 5", NO_TABLE)


def test_limits_of_the_hardware_come_before_the_patterns(temporarily):
    temporarily("relu", relu_form(), parse=relu_layer, limits=[even, one])
    declined(
        relu_module((3, 2, 3, 5)),
        "relu: batch is 1: got 3; the last extent is even: got 5; the first extent is one: got 3",
        NO_TABLE,
    )


def test_a_parser_that_returns_nothing_leaves_the_call_to_others(temporarily):
    temporarily("relu", relu_form(), parse=lambda match: None)
    assert composites(partitioned(relu_module())) == []

    temporarily("inverted", Form(is_op("bitwise_not")(wildcard())), parse=lambda match: None)
    x = variable((1, 2))
    assert reasons(partitioned(module(relay.bitwise_not(x), x))) == [
        "inverted: matches, but its parse leaves the operator to another pattern"
    ]


def failing(*arguments):
    raise KeyError("mine")


def of_no_name(match):
    return replace(relu_layer(match), name=5)


WRONG = {
    "parse": ({"parse": 5}, "pattern 'relu': parse is a function of the match: got 5"),
    "limits": ({"limits": [failing]}, r"limits are functions that limit\(...\) decorates: got \[<"),
    "before": ({"before": "reshape"}, "before is a list of names: got 'reshape'"),
    "samples": ({"samples": 5}, "samples is a function of a generator, or None: got 5"),
    "no pattern": ({"forms": 5}, "a form is a dataflow pattern of TVM: got 5"),
    "no operator": ({"forms": wildcard()}, "pattern 'relu': a form has at least one operator: got none"),
    "parse fails": ({"parse": failing}, "pattern 'relu': its parse fails: KeyError: 'mine'"),
    "no layer": ({"parse": lambda match: "x"}, "its parse returns a layer, or None: got 'x'"),
    "no name": ({"parse": of_no_name}, "pattern 'relu': the name of a layer is a string: got 5"),
    "limit fails": ({"limits": [limit("odd")(failing)]}, "pattern 'relu': limit 'odd' of .*: KeyError: 'mine'"),
    "no check": ({"limits": [limit("odd")(lambda layer: True)]}, "limit 'odd' of .* returns a Check: got True"),
}


@pytest.mark.parametrize(("change", "message"), WRONG.values(), ids=WRONG)
def test_what_is_wrong_with_a_pattern_is_said_with_its_name(temporarily, change, message):
    def used():
        temporarily("relu", **{"forms": relu_form(), "parse": relu_layer, **change})
        partitioned(relu_module())

    with pytest.raises(PatternError, match=message):
        used()


# ---------------------------------------------------------------- the order


def test_a_tie_is_an_error_that_names_both(temporarily):
    temporarily("relu", relu_form(), parse=relu_layer)
    temporarily("relu_again", relu_form(), parse=relu_layer)
    tie = re.escape("patterns 'relu' and 'relu_again' match the same operators (nn.relu): one declares before=")
    with pytest.raises(PatternError, match=tie):
        partitioned(relu_module())
    with pytest.raises(PatternError, match=tie):
        len(pattern_table("hwlib"))


@pytest.mark.parametrize("first", ["relu", "relu_again"])
def test_before_decides_a_tie(temporarily, first):
    names = ("relu", "relu_again")
    for name in names:
        before = [other for other in names if name == first and other != first]
        temporarily(name, relu_form(), parse=relu_layer, before=before)
    accepted(relu_module(), first)


def test_the_form_with_more_operators_is_tried_first(temporarily):
    both = Form(is_op("clip")(is_op("nn.relu")(wildcard())), anchor="nn.relu")
    temporarily("relu", relu_form(), parse=relu_layer)
    temporarily("relu_and_clip", both, parse=relu_layer)
    x = variable((1, 2, 3, 4))
    accepted(module(relay.clip(relay.nn.relu(x), 0.0, 6.0), x), "relu_and_clip")
    accepted(relu_module(), "relu")


def test_a_specific_form_that_declines_leaves_the_call_to_the_general_one(temporarily):
    @limit("never")
    def never(layer):
        return Check("this", False)

    both = Form(is_op("clip")(is_op("nn.relu")(wildcard())), anchor="nn.relu")
    temporarily("relu", relu_form(), parse=relu_layer)
    temporarily("relu_and_clip", both, parse=relu_layer, limits=[never])
    x = variable((1, 2, 3, 4))
    after = partitioned(module(relay.clip(relay.nn.relu(x), 0.0, 6.0), x))
    assert composites(after) == ["relu"]
    assert reasons(after) == ["relu_and_clip: never: got this", NO_TABLE]


def test_the_shipped_forms_are_in_order_of_their_operators():
    forms = [(pattern.name, len(table._operators(form))) for pattern, form in table.ordered_forms()]
    assert [size for _, size in forms] == sorted((size for _, size in forms), reverse=True)
    assert [name for name, _ in forms if name.endswith("conv2d")] == ["qnn_depthwise_conv2d", "qnn_conv2d"] * 2


# ---------------------------------------------------------------- what can be a form


def test_a_form_of_other_patterns_says_what_a_form_is_built_from(temporarily):
    temporarily("of_a_shape", Form(is_op("abs")(wildcard().has_shape((1, 4)))), parse=relu_layer)
    x = variable((1, 4), "float32")
    with pytest.raises(PatternError, match=r"a form is built from is_op.*: got ShapePattern"):
        accepted(module(relay.abs(x), x), "of_a_shape")


def test_each_wildcard_is_an_input_of_the_layer(temporarily):
    form = Form(is_op("maximum")(wildcard(), wildcard()), anchor="maximum")
    temporarily("relu", form, parse=relu_layer)
    x, y = variable((1, 2, 3, 4)), variable((1, 2, 3, 4), name="y")
    rule = "pattern 'relu': each wildcard of a form is an input of the layer, in order: got 2 wildcards for 1 inputs"
    with pytest.raises(PatternError, match=f"^{rule}$"):
        byoc_hw.build(partitioned(module(relay.maximum(x, y), x, y)))


# ---------------------------------------------------------------- installed packages


@pytest.fixture
def loading_anew():
    """`load_patterns` runs once in a process; here once more, with its modules already imported."""
    pattern_files.load_patterns()
    pattern_files.load_patterns.cache_clear()
    yield
    pattern_files.load_patterns.cache_clear()
    pattern_files.load_patterns()


@pytest.mark.usefixtures("loading_anew")
def test_installed_packages_bring_patterns_once(temporarily, monkeypatch):
    loaded = []

    def entry(name):
        def load():
            loaded.append(name)
            if name == "relu":
                register_pattern("relu", relu_form(), parse=relu_layer)

        return SimpleNamespace(name=name, value=f"package:{name}", load=load)

    def entry_points(group):
        assert group == "byoc_hw.patterns"
        return [entry("relu"), entry("another")]

    pattern_files.load_patterns.cache_clear()
    monkeypatch.setattr(pattern_files, "entry_points", entry_points)
    accepted(relu_module(), "relu")
    pattern_files.load_patterns()
    assert loaded == ["another", "relu"]  # by name: the order of installing does not matter


@pytest.mark.usefixtures("loading_anew")
def test_an_installed_pattern_under_a_name_that_is_taken_fails(monkeypatch):
    def load():
        register_pattern("qnn_add", relu_form(), parse=relu_layer)

    pattern_files.load_patterns.cache_clear()
    monkeypatch.setattr(
        pattern_files, "entry_points", lambda group: [SimpleNamespace(name="a", value="a:a", load=load)]
    )
    with pytest.raises(PatternError, match="'qnn_add' is registered twice"):
        partitioned(relu_module())


@pytest.mark.usefixtures("loading_anew")
@pytest.mark.parametrize("error", [AttributeError("module has no attribute a"), ImportError("No module named a")])
def test_an_installed_package_that_fails_is_named(error, monkeypatch):
    def load():
        raise error

    pattern_files.load_patterns.cache_clear()
    monkeypatch.setattr(
        pattern_files, "entry_points", lambda group: [SimpleNamespace(name="mine", value="package:a", load=load)]
    )
    with pytest.raises(PatternError, match=f"entry point mine = package:a of byoc_hw.patterns: .*{error}"):
        partitioned(relu_module())


FIELDS = {
    "weights": (None, "is of type Tensor: got None"),
    "bias": (5, r"is of type Tensor \| None: got 5"),
    "act_min": (0.5, "is of type int: got 0.5"),
    "strides": ((1,), r"is of type Pair: got \(1,\)"),
}


@pytest.mark.parametrize(("name", "value", "reason"), [(name, *one) for name, one in FIELDS.items()], ids=FIELDS)
def test_fields_of_a_layer_have_their_types(name, value, reason, temporarily):
    (conv,) = (one for one in patterns() if one.name == "qnn_conv2d")
    before = ("qnn_conv2d", "qnn_depthwise_conv2d")
    temporarily("odd", conv.forms, parse=lambda match: replace(conv.parse(match), **{name: value}), before=before)
    with pytest.raises(PatternError, match=f"pattern 'odd': {name} of its layer qnn.conv2d_1 {reason}"):
        partitioned(Conv().module())


UNSOUND = {
    "strides": ((0, 1), ("strides are at least 1", "(0, 1)")),
    "act_max": (-200, ("the range of the output is one of int8", "-128 to -200")),
}


@pytest.mark.parametrize(("name", "value", "problem"), [(name, *one) for name, one in UNSOUND.items()], ids=UNSOUND)
def test_numbers_of_a_layer_that_cannot_be_are_found(name, value, problem):
    layer = accepted(Conv().module(), "qnn_conv2d")
    assert list(replace(layer, **{name: value}).unsound()) == [problem]


# ---------------------------------------------------------------- the files


def test_every_file_registers_the_composite_of_its_name():
    pattern_files.load_patterns()
    registered = {pattern.name: pattern for pattern in patterns()}
    assert set(NAMES) <= set(registered)
    for name in NAMES:
        assert registered[name].parse.__module__ == f"byoc_hw.patterns.{name}"
        assert registered[name].document


@pytest.mark.parametrize("name", NAMES)
def test_every_file_opens_with_the_relay_that_it_matches(name):
    text = importlib.import_module(f"byoc_hw.patterns.{name}").__doc__
    pattern = next(pattern for pattern in patterns() if pattern.name == name)
    assert re.search(r" -> \w+\.", text.splitlines()[0]), "the first line ends with -> and the layer kind"
    assert re.search(r"^\s*%\d = ", text, re.MULTILINE), "the Relay is drawn, one value a line"
    for form in pattern.forms:
        for operator in table._operators(form):
            assert operator in text, f"{operator} is in a form and not in the drawing"


def test_every_file_has_a_test_of_its_name():
    here = {path.name for path in Path(__file__).parent.glob("test_*.py")}
    of_all = {Path(__file__).name, "test_relax_forms.py"}
    assert {f"test_{name}.py" for name in NAMES} | of_all == here


@pytest.mark.parametrize(
    ("mod", "composite"),
    [
        (Conv().module(), "qnn_conv2d"),
        (Conv(depthwise=True).module(), "qnn_depthwise_conv2d"),
        (Add().module(), "qnn_add"),
        (Pool(operator="nn.max_pool2d").module(), "max_pool2d"),
    ],
)
def test_another_compiler_has_the_same_patterns_under_its_own_name(mod, composite):
    other = replace(byoc_hw.REFERENCE, name="otherlib", label="OTHER")
    accepted(mod, composite, accelerator=other)
    assert f"otherlib.{composite}" in table_names(pattern_table("otherlib"))
