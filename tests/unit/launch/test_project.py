"""Selection of project files.

cases/choose: paths and the text of .musterignore -> the selected files, and files that look like secrets.
"""

from __future__ import annotations

from typing import Any

from cases import cases
from muster.launch import project


@cases(__file__, "choose")
def test_project_files_are_selected(case: dict[str, Any]) -> None:
    chosen = project.choose(case["paths"], case.get("ignore", ""))
    assert chosen.kept == case["kept"]
    assert chosen.secrets == case["secrets"]


def test_excluded_files_are_reported_with_a_way_to_include_them() -> None:
    assert project.left_out("/home/ada/p", [], []) == []
    secrets, links = project.left_out("/home/ada/p", [".env", "a.pem"], ["data"])
    assert secrets == (
        "launch_project: .env, a.pem are not copied (possible secrets). Put secret values into launch_env_file. To copy"
        " the file, add the line !.env to /home/ada/p/.musterignore"
    )
    assert links.startswith("launch_project: data is not copied: a link is copied, as a regular file, only")


def test_project_above_the_limit_is_rejected_with_its_largest_files() -> None:
    sizes = {"train.py": 1000, **{f"data/{number}.bin": number * 10_000_000 for number in range(1, 8)}}
    assert project.too_much("/p", sizes, 300, 100) == []
    (size,) = project.too_much("/p", sizes, 100, 100)
    assert size == (
        "launch_project /p has 280 MB in 8 files; the maximum is 100 MB. Largest files: data/7.bin (70 MB),"
        " data/6.bin (60 MB), data/5.bin (50 MB), data/4.bin (40 MB), data/3.bin (30 MB). Exclude files that no rank"
        " needs (.gitignore, .musterignore), or increase launch_project_max_mb."
    )
    (number,) = project.too_much("/p", sizes, 300, 5)
    assert number == (
        "launch_project /p has 8 files; the maximum is 5. Folders with the most files: data (7), train.py (1). Exclude"
        " files that no rank needs (.gitignore, .musterignore)."
    )


def test_missing_script_is_reported_with_a_similar_name() -> None:
    paths = ["train.py", "tools/convert.py", "README.md"]
    assert project.script_problem("train.py", "/p", paths) == ""
    said = project.script_problem("trian.py", "/p", paths)
    assert said.endswith("the copied files of launch_project /p. Did you mean train.py?")
    assert project.script_problem("other", "/p", paths).endswith("of launch_project /p.")
