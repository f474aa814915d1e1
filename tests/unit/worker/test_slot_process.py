"""What makes a process fit for calls.

In a process of its own, whose logging and limits are changed.
"""

from support import python_subprocess


def test_our_logs_go_to_the_agent_and_user_code_finds_no_handlers() -> None:
    program = """
import logging, os
from kilnwork.worker import slot_process
reading, writing = os.pipe()
os.dup2(writing, 2)
logging.basicConfig(format="%(name)s %(message)s")
slot_process.quieten_logs()
os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # from now on the slot_process's own output
logging.getLogger("kilnwork.channel.blocking_link").warning("of ours")
logging.getLogger("kilnwork.channel.blocking_link").info("not that loud")
logging.getLogger("user").error("of a task")
print(os.read(reading, 4096).decode().splitlines(), logging.getLogger().handlers)
"""
    assert python_subprocess.run(program) == "['kilnwork.channel.blocking_link of ours'] []"


def test_stack_limit_is_raised_up_to_the_hard_limit() -> None:
    program = """
import resource
from kilnwork.worker import slot_process
resource.setrlimit(resource.RLIMIT_STACK, (1 << 20, resource.RLIM_INFINITY))
slot_process._widen_stack()
first, _ = resource.getrlimit(resource.RLIMIT_STACK)
resource.setrlimit(resource.RLIMIT_STACK, (1 << 20, 2 << 20))
slot_process._widen_stack()
print(first == slot_process.STACK_BYTES, resource.getrlimit(resource.RLIMIT_STACK)[0])
"""
    assert python_subprocess.run(program) == f"True {2 << 20}"


def test_larger_stack_limit_is_kept() -> None:
    program = """
import resource
from kilnwork.worker import slot_process
wide = 2 * slot_process.STACK_BYTES
resource.setrlimit(resource.RLIMIT_STACK, (wide, resource.RLIM_INFINITY))
slot_process._widen_stack()
print(resource.getrlimit(resource.RLIMIT_STACK)[0] == wide)
"""
    assert python_subprocess.run(program) == "True"
