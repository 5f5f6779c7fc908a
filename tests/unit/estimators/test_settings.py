"""Settings as YAML gives them: of a wrong type, true for a number, numbers that are none."""

import math

import numpy as np
import pytest
import torch

from steprs.errors import ArgumentError, ConfigError
from steprs.estimators import ESTIMATORS, get_estimator
from steprs.estimators.pipeline import estimate
from steprs.testing.estimators import example_batch

INF, NAN = math.inf, math.nan
NUMBER, WHOLE, SWITCH = "a finite number", "a whole number", "true or false"


@pytest.mark.parametrize(
    ("name", "setting", "given", "allowed"),
    [
        ("pkpo", "k", "four", WHOLE), ("pkpo", "k", INF, WHOLE), ("pkpo", "k", [4], WHOLE), ("pkpo", "k", None, WHOLE),
        ("pkpo", "k", True, WHOLE), ("pkpo", "k", 4.0, WHOLE), ("pkpo", "k_end", "1", f"{WHOLE}.* or null"),
        ("pkpo", "k", 10**400, WHOLE), ("maxrl", "eps", "a", NUMBER), ("maxrl", "eps", INF, NUMBER),
        ("maxrl", "eps", 10**400, NUMBER), ("f-grpo", "gamma", "1", NUMBER), ("f-grpo", "gamma", INF, NUMBER),
        ("capo", "share", "x", NUMBER), ("capo", "base", 1, "'standardised', 'centred'"),
        ("aapo", "clip_low", None, NUMBER), ("sas", "ratio", "0.3", NUMBER), ("sas", "unit", 3, "'state', 'block'"),
        ("sas", "unit", ["state"], "'state', 'block'"), ("egspo", "states", "8", NUMBER),
        ("egspo", "states", None, NUMBER), ("egspo", "states", INF, NUMBER), ("egspo", "states", True, NUMBER),
        ("gain", "norm", 3, "'joint', 'state', 'none'"), ("state-anchor", "gamma", "1", NUMBER),
        ("state-anchor", "episode", NAN, NUMBER), ("state-anchor", "omega", INF, NUMBER),
        ("state-anchor", "leave_one_out", "false", SWITCH), ("state-anchor", "leave_one_out", 1, SWITCH),
        ("ha-dw", "window", 10.0, WHOLE), ("ha-dw", "scale", INF, NUMBER), ("vsrm", "lookahead", 1.5, WHOLE),
        ("copo", "rho", "x", NUMBER), ("copo", "rho", NAN, NUMBER), ("standardised", "ddof", True, "0, 1"),
        ("standardised", "eps", INF, NUMBER), ("passk-training", "eps", INF, NUMBER),
        ("rs-grpo", "risk_coef", "2", NUMBER), ("rs-grpo", "risk_coef", 2j, NUMBER),
        ("egspo-sa", "coefficient", INF, NUMBER), ("egspo-sa", "divide", "no", SWITCH), ("bae", "shrink", INF, NUMBER),
        ("wd1", "temperature", INF, NUMBER), ("passk-training", "k", 1.5, WHOLE),
        ("mdpo", "states", 2.5, f"{WHOLE}.* or null"),
        ("steprs-grpo", "schedule", "linear", "AbstractSchedule"),
    ],
)  # fmt: skip
def test_wrong_types_are_refused_with_what_is_allowed(name, setting, given, allowed):
    with pytest.raises(ConfigError, match=f"estimator '{name}': setting '{setting}' is .*{allowed}.* is needed"):
        get_estimator(name, **{setting: given})


@pytest.mark.parametrize(
    "given", [None, "1", True, NAN, INF, -INF, 10**400, [1], {}, 2j, object()], ids=lambda given: str(given)[:9]
)
@pytest.mark.parametrize("name", ESTIMATORS)
def test_no_setting_of_any_estimator_takes_anything(name, given):
    for setting, default in get_estimator(name).settings().items():
        try:
            found = get_estimator(name, **{setting: given}).settings()[setting]
        except (ConfigError, ArgumentError) as error:
            assert setting in str(error)
        else:
            fit = given is None or (given is True and isinstance(default, bool))
            # Names of StepRS-GRPO's choices are refused when they are used.
            assert fit or (name == "steprs-grpo" and isinstance(given, str)), f"{setting}={found!r} was taken"


def test_a_number_too_long_to_be_written_is_refused_in_words():
    with pytest.raises(ConfigError, match="setting 'k' is a number of thousands of digits"):
        get_estimator("pkpo", k=10**5000)


def test_defaults_and_other_forms_of_a_number_are_taken():
    for name in ESTIMATORS:
        made = get_estimator(name)
        assert get_estimator(name, **made.settings()) == made
    assert get_estimator("maxrl", eps=1) == get_estimator("maxrl", eps=np.float32(1)) == get_estimator("maxrl", eps=1.0)
    assert get_estimator("pkpo", k=np.int64(3)).smallest_group() == 3
    assert get_estimator("mdpo", states=None).states is None


def test_a_setting_that_is_called_name_is_no_argument_of_ours():
    with pytest.raises(ConfigError, match="takes no setting 'name'"):
        get_estimator("pkpo", **{"name": 3})


@pytest.mark.parametrize("name", ["wd1", "wd1-batch"])
def test_a_temperature_that_overflows_is_refused(name):
    with pytest.raises(ArgumentError, match=f"{name}: temperature is 1e-320; 1e-06 or more is needed"):
        get_estimator(name, temperature=1e-320)


def test_any_number_of_states_is_all_of_them_at_most():
    batch = example_batch([[1.0, 0.0]])
    found = estimate(get_estimator("egspo", states=1e300), batch, {})[0].values_PGL
    assert torch.equal(found, estimate(get_estimator("centred"), batch, {})[0].values_PGL)
