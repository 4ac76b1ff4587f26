"""An image for each test, which is sound when the test is over."""

import shutil
import subprocess

import pytest

import extant


@pytest.fixture
def image(tmp_path):
    path = tmp_path / "disk.img"
    extant.mkfs(path, 32 << 20)
    yield path
    assert extant.check(path) == (0, [])
    if shutil.which("e2fsck"):
        done = subprocess.run(["e2fsck", "-fn", path], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout


@pytest.fixture
def fs(image):
    with extant.open(image, "r+") as fs:
        yield fs
