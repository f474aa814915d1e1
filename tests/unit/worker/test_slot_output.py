"""What a call prints: in order, with its end, and never so that the call waits for a reader.

In a process of its own, whose descriptors 1 and 2 become the pipe.
"""

import json
from typing import Any

import pytest

from support import python_subprocess

PROGRAM = """
import json, os, sys, time
from kilnwork.api import attempts, calls
from kilnwork.kit import ids
from kilnwork.worker import slot_call_table, slot_output, slot_page

REPORT = os.dup(1)
SHOWN = os.memfd_create("stdout")
os.dup2(SHOWN, 1)

class World:
    def __init__(self):
        self.logs, self.room, self.now = [], True, 100.0
        reading, writing = os.pipe()
        os.set_blocking(reading, False)
        self.page = slot_page.SlotPage(slot_page.create_page())
        self.output = slot_output.SlotOutput(
            (reading, writing), self.page, send=self.logs.append, room=lambda: self.room,
            monotonic=lambda: self.now,
        )
        ref = attempts.AttemptRef(ids.TaskId(bytes(16)), 1, 1)
        run = calls.CallRun(ref, 1, attempts.Payload(attempts.JSON, b"[[],{}]"), "")
        self.level = slot_call_table.StackLevel(run, 0.0)

    def shown(self):
        size = os.fstat(SHOWN).st_size
        return os.pread(SHOWN, size, 0)

    def log(self):
        "Output by offset; gaps are dots."
        text = bytearray()
        for message in self.logs:
            text.extend(b"." * (message.offset - len(text)))
            text[message.offset:] = message.data
        return bytes(text)

def report(value):
    os.write(REPORT, json.dumps(value).encode())

world = World()
"""


def run(story: str) -> Any:
    return json.loads(python_subprocess.run(PROGRAM + story))


def test_output_belongs_to_the_call_that_ends() -> None:
    story = """
print("a line")
os.write(2, b"no end")
settled = world.output.settle(world.level)
again = world.output.settle(world.level)
report([settled, again, world.log().decode(), world.shown().decode(), world.level.printed])
"""
    assert run(story) == [True, False, "a line\nno end", "a line\nno end\n", 13]


def test_output_of_a_running_call_is_sent() -> None:
    story = """
print("now")
busy = world.output.drain_some(world.level)
report([busy, world.log().decode()])
"""
    assert run(story) == [False, "now\n"]


def test_without_room_only_a_limited_amount_is_read() -> None:
    story = """
world.room = False
slot_output.AWAY_BYTES = 10
os.write(1, b"x" * 25)
world.output.drain_some(world.level)
world.output.drain_some(world.level)
first = world.level.printed
world.room = True
world.output.drain_some(world.level)
report([first, world.level.printed])
"""
    assert run(story) == [10, 25]


def test_of_excess_output_the_end_is_kept_and_the_rest_is_counted() -> None:
    story = """
slot_output.TAIL_BYTES = 100
slot_output.READ_BYTES = 50
slot_output.BUSY_BYTES = 40
slot_output.WHOLE_BYTES = 0
slot_output.PIECE_S = -1.0  # no time to pass on anything
for letter in (b"a", b"b", b"c", b"d"):
    os.write(1, letter * 49 + b"\\n")
    world.output.drain_some(world.level)
world.output.settle(world.level)
report([world.log().decode(), world.shown().decode()])
"""
    log, shown = run(story)
    assert log == "." * 100 + "c" * 49 + "\n" + "d" * 49 + "\n"
    assert shown == (
        "[kilnwork: 100 bytes of output dropped here]\n" + "c" * 49 + "\n" + "d" * 49 + "\n"
    )


def test_dropped_output_is_also_left_out_of_the_workers_own_output() -> None:
    story = """
slot_output.TAIL_BYTES = 100
slot_output.READ_BYTES = 50
slot_output.BUSY_BYTES = 40
slot_output.WHOLE_BYTES = 0
slot_output.PIECE_S = -1.0
slot_output.STDOUT_TAIL_BYTES = 50
for letter in (b"a", b"b", b"c", b"d"):
    os.write(1, letter * 49 + b"\\n")
    world.output.drain_some(world.level)
world.output.settle(world.level)
report([len(world.log()), world.shown().decode()])
"""
    length, shown = run(story)
    assert length == 200
    assert shown == "[kilnwork: 150 bytes of output dropped here]\n" + "d" * 49 + "\n"


def test_pieces_are_sent_with_pauses() -> None:
    story = """
slot_output.READ_BYTES = 50
slot_output.BUSY_BYTES = 50
slot_output.WHOLE_BYTES = 0
sent = []
for step in (0.0, 0.01, slot_output.PACE_S):
    world.now += step
    os.write(1, b"x" * 50)
    world.output.drain_some(world.level)
    sent.append(len(world.logs))
report(sent)
"""
    assert run(story) == [1, 1, 2]


@pytest.mark.parametrize(
    "spoil",
    [
        "os.close(1); os.close(2)",
        "os.dup2(os.open(os.devnull, os.O_WRONLY), 1)",
        "import io; sys.stdout = sys.stderr = io.StringIO()",
    ],
)
def test_output_is_restored_for_the_next_call(spoil: str) -> None:
    story = f"""
{spoil}
world.output.repair()
print("out")
print("err", file=sys.stderr)
os.write(1, b"1\\n")
world.output.settle(world.level)
report(world.log().decode())
"""
    assert run(story) == "out\nerr\n1\n"


def test_last_output_can_be_sent_again() -> None:
    story = """
slot_output.KEPT_BYTES = 10
for text in ("one", "two", "three-four"):
    os.write(1, text.encode())
    world.output.settle(world.level)
report([each.data.decode() for each in world.output.kept_logs])
"""
    assert run(story) == ["three-four"]
