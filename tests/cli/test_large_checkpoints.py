"""A checkpoint is written and read without a second copy of the table in memory."""

import os
import subprocess
import sys
import time
from pathlib import Path

from cli.large_table import status

BLOCKS = 22_000_000
"""Of 9 bytes each (a row, when it was visited, whether): 200 MB."""

HEADROOM = 64 << 20
"""What saving or loading may take to itself, of whatever size the table is."""


def start(*words):
    script = Path(__file__).with_name("large_table.py")
    return subprocess.Popen(
        [sys.executable, str(script), *map(str, words)],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_neither_saving_nor_loading_holds_a_copy(tmp_path):
    """By the most anonymous memory that the process held.

    Neither ``ru_maxrss`` nor ``VmHWM`` will do: both count the pages of a mapped file, which the
    kernel drops when it needs the room. There is no high-water mark of the rest (``RssAnon``), so
    we look all the time; from here, for a thread of that process would wait for its lock.
    """
    process, peak = start(tmp_path, BLOCKS), 0
    while process.poll() is None:
        peak = max(peak, status("RssAnon", process.pid) or 0)
        time.sleep(0.001)
    out, err = process.communicate()
    assert process.returncode == 0, err
    held, before = map(int, out.split())
    assert held >= 9 * BLOCKS
    assert before > held, "the table itself was seen"
    assert peak - before < HEADROOM


def test_a_table_larger_than_the_room_there_is(tmp_path):
    """The kernel refuses more; that a checkpoint finds no room does not count as its being spoiled.

    A copy made for a moment, between two looks of the other test, is refused as well.
    """
    process = start(tmp_path, BLOCKS, HEADROOM)
    out, err = process.communicate()
    assert process.returncode == 0, err
    assert "spoiled" not in err
    assert int(out.split()[0]) > 2 * HEADROOM
