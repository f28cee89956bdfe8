"""A setting is written once: flags, files, help and errors all come from ``Config``."""

import ast
import json
import subprocess
import sys
from dataclasses import fields, replace
from importlib import import_module

import pytest
from cli.command import call, flags

from fcco_lab.cli import options
from fcco_lab.cli.app import COMMANDS
from fcco_lab.cli.options import make_config
from fcco_lab.cli.tune import SEARCHED
from fcco_lab.training import Config, read_toml
from fcco_lab.training.config import choices_of, describe
from fcco_lab.training.problem import OBJECTIVES

OTHER = {
    "data": "usps",
    "target": "time,event",
    "drop": "name",
    "train_size": 100,
    "holdout": 0.25,
    "objective": "gap",
    "temperature": 0.25,
    "cross_entropy": 0.75,
    "network": "mlp",
    "method": "msvrm-v1",
    "update": "plain",
    "lr": 7.5,
    "alpha": 0.125,
    "beta": 1.0,
    "gamma": 0.375,
    "safeguard": False,
    "updated_slopes": True,
    "snapshot_every": 9,
    "weight_decay": 0.5,
    "decay": "none",
    "blocks_per_step": 2,
    "samples_per_block": 4,
    "shares": 2,
    "steps": 11,
    "work": 12,
    "evaluations": 3,
    "seed": -5,
    "threads": 2,
    "device": "cpu:0",
}
"""A value of every setting that is not its default."""


def test_every_setting_has_another_value_here():
    assert OTHER.keys() == {field.name for field in fields(Config)}
    assert not [name for name, value in OTHER.items() if value == getattr(Config, name)]


def given_to(command, capsys, monkeypatch, *words):
    """The config that ``fcco command words`` makes."""
    made = []

    def stop(*arguments):
        made.append(make_config(*arguments))
        raise SystemExit

    monkeypatch.setattr(options, "make_config", stop)
    done = call(capsys, command, *words)
    assert done.code == 0, done.err
    return made[0]


DECIDED = {"train": (), "compare": ("method",), "tune": SEARCHED}
"""What a command decides itself."""


@pytest.mark.parametrize(
    ("command", "name"),
    [(c, n) for c, decided in DECIDED.items() for n in OTHER if n not in decided],
)
def test_a_flag_and_a_key_say_the_same(tmp_path, capsys, monkeypatch, command, name):
    value = OTHER[name]
    wanted = Config(**{name: value})
    if command != "compare" and name != "objective":
        wanted = replace(wanted, objective=wanted.usual_objective)
    file = tmp_path / "run.toml"
    file.write_text(f"{name} = {json.dumps(value)}\n")
    assert read_toml(file) == {name: value}
    for words in (flags({name: value}), ["--config", file]):
        made = given_to(command, capsys, monkeypatch, *words)
        assert made == wanted, words
        assert type(getattr(made, name)) is type(value), "so that a run has one name"


def test_help_has_every_setting_with_its_default(capsys):
    shown = " ".join(call(capsys, "train", "--help").out.replace("│", " ").split())
    for field in fields(Config):
        assert f" --{field.name.replace('_', '-')} " in shown
        assert describe(field) in shown
        default = (
            "auc-exp, or auc-odds if slopes are stale"
            if field.name == "objective"
            else field.default
        )
        assert f"[default: ({str(default).lower()})]" in shown
    tune = call(capsys, "tune", "--help").out
    assert "--weight-decay" in tune
    assert "--lr" not in tune, "it is searched"


IMPORTED = """
import sys
sys.argv = ["fcco", *{words!r}]
from fcco_lab.cli import main
try:
    main()
finally:
    print(sorted({{name.partition(".")[0] for name in sys.modules}}))
"""


@pytest.mark.parametrize("words", [("-h",), ("",), ("trian",)])
def test_help_is_light(words):
    """Neither the list of commands nor a mistyped one waits for torch."""
    done = subprocess.run(
        [sys.executable, "-c", IMPORTED.format(words=words)], capture_output=True, text=True
    )
    imported = ast.literal_eval(done.stdout.splitlines()[-1])
    assert "fcco_lab" in imported
    heavy = {"torch", "numpy", "fcco", "sklearn", "matplotlib", "scipy", "optuna"}
    assert not heavy & set(imported)
    expected = {"-h": "compare", "": "nothing was given", "trian": "train"}
    assert expected[words[0]] in done.stdout + done.stderr


def test_objectives_that_help_lists_are_those_there_are():
    assert tuple(OBJECTIVES) == choices_of("objective")


def test_top_level_help_has_every_command(capsys):
    shown = call(capsys, "--help").out
    for name, line in COMMANDS.items():
        assert f" {name} " in shown
        assert line in shown
        assert callable(getattr(import_module(f"fcco_lab.cli.{name}"), name))


def test_flags_and_commands_in_any_case(capsys, monkeypatch):
    assert given_to("Train", capsys, monkeypatch, "--LR", "0.5", "--Method", "sox").lr == 0.5
