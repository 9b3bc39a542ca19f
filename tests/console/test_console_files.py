"""Files of a run on another machine: read where they have come to, and a hint for those that have not come."""

from __future__ import annotations

import pytest

from stoker.base.errors import NotFound
from stoker.console import files


def test_a_file_is_read_where_it_has_come_to(tmp_path):
    for name in ("home", "outputs"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "loss.txt").write_text(name)
    run = {"name": "train", "ref": "train", "target": "box", "folder": f"{tmp_path}/home", "workdir": "/elsewhere",
           "outputs": {"kept_in": f"{tmp_path}/outputs"}, "files": []}
    for place, folder in (("here", "home"), ("outputs", "outputs")):
        run["files"] = [{"path": "loss.txt", "bytes": 4, "place": place}]
        assert files.find(run, "loss.txt").text == folder
    run["files"] = [{"path": "loss.txt", "bytes": 4, "place": "there"}]
    with pytest.raises(NotFound, match="still on the machine box") as told:
        files.find(run, "loss.txt").pieces()
    assert told.value.hint == "To copy it here: stoker pull train loss.txt"
