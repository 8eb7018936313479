"""Which files of a project are sent.

cases/choose: paths, and the text of .musterignore -> what is kept, and what looks like a secret.
"""

from __future__ import annotations

from typing import Any

from cases import cases
from muster.launch import project


@cases(__file__, "choose")
def test_choose(case: dict[str, Any]) -> None:
    chosen = project.choose(case["paths"], case.get("ignore", ""))
    assert chosen.kept == case["kept"]
    assert chosen.secrets == case["secrets"]


def test_what_is_not_sent_is_named_with_the_way_to_include_it() -> None:
    assert project.left_out("/home/ada/p", [], []) == []
    secrets, links = project.left_out("/home/ada/p", [".env", "a.pem"], ["data"])
    assert secrets == (
        "launch_project: .env, a.pem are not sent, because that looks like a secret. Put values into launch_env_file; a"
        " file that is none is sent with a line !.env in /home/ada/p/.musterignore"
    )
    assert links.startswith("launch_project: data is not sent: only a link to a file that is sent itself")


def test_a_project_that_is_too_large_is_refused_with_its_largest_files() -> None:
    sizes = {"train.py": 1000, **{f"data/{number}.bin": number * 10_000_000 for number in range(1, 8)}}
    assert project.too_much("/p", sizes, 300, 100) == []
    (size,) = project.too_much("/p", sizes, 100, 100)
    assert size == (
        "launch_project /p has 280 MB in 8 files, and at most 100 MB are sent. The largest: data/7.bin (70 MB),"
        " data/6.bin (60 MB), data/5.bin (50 MB), data/4.bin (40 MB), data/3.bin (30 MB). Leave out what no rank needs"
        " (.gitignore, .musterignore), or raise launch_project_max_mb."
    )
    (number,) = project.too_much("/p", sizes, 300, 5)
    assert number == (
        "launch_project /p has 8 files, and at most 5 are sent. Most: data (7), train.py (1). Leave out what no rank"
        " needs (.gitignore, .musterignore)."
    )


def test_a_script_that_is_not_there_is_named_with_the_one_that_is_like_it() -> None:
    paths = ["train.py", "tools/convert.py", "README.md"]
    assert project.script_problem("train.py", "/p", paths) == ""
    said = project.script_problem("trian.py", "/p", paths)
    assert said.endswith("the files of launch_project /p that are sent. Did you mean train.py?")
    assert project.script_problem("other", "/p", paths).endswith("that are sent.")
