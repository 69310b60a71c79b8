import shutil

import pytest

from dpmodule.agents.parlai import build_data
from dpmodule.base import NotSupportedError


def test_data_is_built_once_for_a_version(tmp_path):
    folder = str(tmp_path / "a" / "b")
    assert not build_data.built(folder, "v1")
    build_data.make_dir(folder)
    build_data.mark_done(folder, "v1")
    assert build_data.built(folder, "v1")
    assert build_data.built(folder)
    assert not build_data.built(folder, "v2")
    build_data.remove_dir(folder)
    assert not build_data.built(folder)


@pytest.mark.parametrize(("kind", "name"), [("gztar", "x.tar.gz"), ("zip", "x.zip")])
def test_archives_are_unpacked_in_their_folder(kind, name, tmp_path):
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "file").write_text("content")
    shutil.make_archive(str(tmp_path / "x"), kind, tmp_path / "source")
    build_data.untar(str(tmp_path), name, deleteTar=False)
    build_data.untar(str(tmp_path), name)
    assert (tmp_path / "file").read_text() == "content"
    assert not (tmp_path / name).exists()
    build_data.move(str(tmp_path / "file"), str(tmp_path / "moved"))
    assert (tmp_path / "moved").exists()


def test_only_present_files_are_downloaded(tmp_path):
    (tmp_path / "here").write_text("")
    build_data.download("address", str(tmp_path), "here")
    build_data.download_from_google_drive("id", str(tmp_path / "here"))
    with pytest.raises(NotSupportedError, match=f"save address as {tmp_path}/away"):
        build_data.download("address", str(tmp_path), "away")
    with pytest.raises(NotSupportedError, match="train one"):
        build_data.download_models({}, [], "folder")
    assert build_data.modelzoo_path("data", "zoo:a/model") == "data/models/a/model"
    assert build_data.modelzoo_path("data", "own") == "own"
