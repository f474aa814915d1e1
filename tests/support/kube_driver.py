"""A driver program outside the cluster: many calls, each of which leaves a note.

Started by tests/cluster/test_driver_faults.py as `python kube_driver.py CLUSTER COUNT`, with a
kubeconfig; its functions are sent to the workers by value. It prints `begun`, then the sum of
squares.
"""

import os
import sys
import time

import kilnwork as kiln


@kiln.task(max_losses=20)
def square(number: int) -> int:
    context = kiln.context()
    line = f"{context.task_id} {context.run} {context.attempt}\n"
    file = os.open("/notes/ran", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
    try:
        os.write(file, line.encode())
    finally:
        os.close(file)
    time.sleep(0.3)
    return number * number


def main() -> None:
    cluster, count = sys.argv[1], int(sys.argv[2])
    with kiln.connect(cluster=cluster):
        futures = [square.submit(number) for number in range(count)]
        print("begun", flush=True)
        print(sum(future.result() for future in futures), flush=True)


if __name__ == "__main__":
    main()
