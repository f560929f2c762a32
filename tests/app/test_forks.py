"""A program that has used its store forks: the child works for itself, and the parent goes on."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import asyncio, logging, multiprocessing, os, signal, sys, threading, time
from paceline import App, Concurrency, Worker

logging.getLogger("paceline").setLevel(logging.ERROR)
url = sys.argv[1]
is_shared = not url.startswith("memory")
app = App(url)
app.limit("slots", Concurrency(50))
limiter = app.limiter("permits", Concurrency(1))

@app.task()
async def add(a, b):
    return a + b

async def count():
    return sum((await app.queue().counts()).values())

async def add_some(number):
    for i in range(number):
        await add.enqueue(i, 1)

def child(work, *args):
    pid = os.fork()
    if pid:
        return pid
    signal.alarm(10)
    try:
        work(*args)
        os._exit(0)
    except BaseException as error:
        print("child:", repr(error), flush=True)
        os._exit(3)

def gone(pid):
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

def use_in_child():
    for i in range(3):
        add.enqueue_sync(i, 1)
    asyncio.run(add_some(3))
    add.enqueue_sync(1, 1)

def expect(said, wanted):
    assert said == wanted, (said, wanted)
"""


def run(url: str, scene: str) -> None:
    program = PROGRAM + scene + "\nprint('good')\n"
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program, url], capture_output=True, text=True, timeout=60, check=False
    )

    assert (done.returncode, done.stdout, done.stderr) == (0, "good\n", "")


def test_a_child_enqueues_whatever_its_parent_did_before_and_the_parent_goes_on(url: str) -> None:
    run(
        url,
        """
for number, before in enumerate((lambda: None, lambda: add.enqueue_sync(0, 1), lambda: asyncio.run(add_some(1))), 1):
    before()
    had = asyncio.run(count()) if number > 1 else 0
    pids = [child(use_in_child) for _ in range(2)]
    asyncio.run(add_some(2))
    add.enqueue_sync(1, 1)
    expect([gone(pid) for pid in pids], [0, 0])
    asyncio.run(add_some(2))
    expect(asyncio.run(count()), had + 5 + (14 if is_shared else 0))
""",
    )


def test_a_child_of_multiprocessing_and_its_own_child_enqueue(url: str) -> None:
    run(
        url,
        """
def grandchild():
    use_in_child()
    expect(gone(child(use_in_child)), 0)
    use_in_child()
add.enqueue_sync(0, 1)
process = multiprocessing.get_context("fork").Process(target=grandchild)
process.start()
process.join(20)
expect(process.exitcode, 0)
add.enqueue_sync(0, 1)
expect(asyncio.run(count()), 2 + (21 if is_shared else 0))
""",
    )


def test_children_work_while_a_worker_and_callers_run_in_threads_of_the_parent(url: str) -> None:
    run(
        url,
        """
over = threading.Event()
async def work():
    async with app.worker(concurrency=5):
        while not over.is_set():
            await asyncio.sleep(0.01)
def call():
    while not over.is_set():
        add.enqueue_sync(1, 1)
def wait_for(condition):
    for _ in range(2000):
        if condition():
            return
        time.sleep(0.005)
    raise SystemExit("not in time")
threads = [threading.Thread(target=asyncio.run, args=(work(),)), *(threading.Thread(target=call) for _ in range(2))]
for thread in threads:
    thread.start()
for number in range(6):
    time.sleep(0.05)
    expect(gone(child(use_in_child)), 0)
late = add.enqueue_sync(40, 2)
wait_for(lambda: asyncio.run(late.refresh()).state == "completed")
over.set()
for thread in threads:
    thread.join(20)
counts = asyncio.run(app.queue().counts())
expect(counts["active"] + counts["failed"], 0)
""",
    )


def test_a_child_runs_a_worker_that_was_made_before_the_fork(url: str) -> None:
    run(
        url,
        """
worker = app.worker()
job = add.enqueue_sync(40, 2)
names = worker.name
def work():
    assert worker.name != names
    asyncio.run(worker.run(until_empty=True))
    expect(asyncio.run(job.result(timeout=5)), 42)
pids = [child(work) for _ in range(2)]
expect([gone(pid) for pid in pids], [0, 0])
if is_shared:
    expect(asyncio.run(job.result(timeout=5)), 42)
    asyncio.run(add_some(1))
asyncio.run(worker.run(until_empty=True))
""",
    )


def test_a_child_has_permits_of_its_own(url: str) -> None:
    run(
        url,
        """
async def use():
    taken = await limiter.try_acquire()
    assert taken is not None and await limiter.try_acquire() is None
    await taken.release()
asyncio.run(use())
async def take():
    # The ids of permits must differ, or parent and child would share one slot.
    return await limiter.try_acquire() is not None
reads, writes = os.pipe()
def in_child():
    got = asyncio.run(take())
    os.write(writes, b"1" if got else b"0")
pids = [child(in_child) for _ in range(3)]
mine = asyncio.run(take())
expect([gone(pid) for pid in pids], [0, 0, 0])
expect(os.read(reads, 3).count(b"1") + mine, 1 if is_shared else 4)
""",
    )


def test_locks_that_other_threads_hold_at_the_fork_do_not_stop_the_child(url: str) -> None:
    run(
        url,
        """
from paceline import stores
from paceline.lifecycle import portal
add.enqueue_sync(0, 1)
held = [portal._lock, stores._lock]
client = getattr(app.store, "_client", None)
if client is not None:
    held.append(client._lock)
if hasattr(app.store, "connections"):
    held += [app.store.connections._lock, app.store.ears._lock]
if hasattr(app.store, "sleepers"):
    held.append(app.store.sleepers._lock)
ready, over = threading.Event(), threading.Event()
def hold():
    for lock in held:
        lock.acquire()
    ready.set()
    over.wait(20)
    for lock in held:
        lock.release()
thread = threading.Thread(target=hold)
thread.start()
ready.wait()
def in_child():
    use_in_child()
    App(url).queue()
pid = child(in_child)
expect(gone(pid), 0)
over.set()
thread.join()
add.enqueue_sync(0, 1)
""",
    )


def test_the_jobs_of_a_child_are_kept_when_its_parent_ends_first(url: str) -> None:
    if url.startswith("memory"):
        return  # it ends with its process
    run(
        url,
        """
add.enqueue_sync(0, 1)
reads, writes = os.pipe()
told, tell = os.pipe()
def in_child():
    add.enqueue_sync(1, 1)
    os.write(writes, b"1")
    os.read(told, 1)
    add.enqueue_sync(2, 1)
    os.write(writes, b"2")
    time.sleep(0.2)
pid = child(in_child)
os.read(reads, 1)
asyncio.run(app.store.close())
os.write(tell, b"x")
os.read(reads, 1)
import subprocess
count = "import asyncio, sys, paceline as p; print(asyncio.run(p.App(sys.argv[1]).queue().counts())['waiting'])"
expect(subprocess.run([sys.executable, "-c", count, url], capture_output=True, text=True).stdout, "3\\n")
expect(gone(pid), 0)
expect(subprocess.run([sys.executable, "-c", count, url], capture_output=True, text=True).stdout, "3\\n")
""",
    )
