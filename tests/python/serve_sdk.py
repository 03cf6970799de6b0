"""Drives a pool with the Python SDK of DeepSeek Harness, as it is, and prints what it made of it as JSON.

    serve_sdk.py SCENARIO PROGRAM DIRECTORY

PROGRAM is what the SDK starts as its runtime, DIRECTORY where the sessions work.
"""

import json
import os
import sys
import threading

from deepseek_harness import DeepSeekHarness
from deepseek_harness.errors import JsonRpcError

SCENARIO, PROGRAM, DIRECTORY = sys.argv[1:]


def harness(node=None):
    named = {} if node is None else {"provider": "offspring", "model": node}
    return DeepSeekHarness(dsh_bin=PROGRAM, cwd=DIRECTORY, dsh_home=os.path.join(DIRECTORY, "dsh"), **named)


def told(result):
    return {
        "session": result.session_id,
        "final_response": result.final_response,
        "finish_reason": result.finish_reason,
        "events": result.events,
        "notifications": [{"method": one.method, "params": one.payload} for one in result.notifications],
    }


def run():
    """A session that is used twice, and what the callback was given."""
    heard = []
    with harness() as dsh:
        session = dsh.start_session("first")
        one = session.run("one", on_notification=heard.append)
        two = session.run([{"type": "text", "text": "two"}])
        lone = dsh.run("three")
    return {
        "one": told(one),
        "two": told(two),
        "lone": told(lone),
        "heard": [{"method": each.method, "params": each.payload} for each in heard],
    }


def tree():
    """A session whose child has a child."""
    with harness("top") as dsh:
        return told(dsh.run("deep", session_id="nested"))


def ends():
    """How a turn ends that does not end well."""
    with harness("fail") as dsh:
        return told(dsh.run("x", session_id="failing"))


def resume():
    """A session of a process that is gone; what is new, and what cannot be resumed."""
    with harness() as dsh:
        before = dsh.start_session("kept").run("before")
    errors = []
    with harness() as dsh:
        for attempt in (lambda: dsh.run("x", session_id="kept"), lambda: dsh.resume_session("missing")):
            try:
                attempt()
            except JsonRpcError as error:
                errors.append({"code": error.code, "message": error.message, "data": error.data})
        session = dsh.resume_session("kept")
        after = session.run("after")
        directory = session.get_working_directory()
    return {"before": told(before), "after": told(after), "directory": directory, "errors": errors}


def directory():
    """Where a session works: asked, changed, used, and after a resume."""
    with harness("where") as dsh:
        session = dsh.start_session("moving")
        at_first = session.get_working_directory()
        first = session.run("x")
        changed = session.set_working_directory("below")
        second = session.run("x")
        try:
            session.set_working_directory("nowhere")
            error = None
        except JsonRpcError as refused:
            error = refused.message
    with harness("where") as dsh:
        again = dsh.resume_session("moving").get_working_directory()
    return {
        "at_first": at_first,
        "first": first.final_response,
        "changed": changed,
        "second": second.final_response,
        "error": error,
        "again": again,
    }


def threads():
    """Two sessions at once, each in a thread of its own, with five turns each."""
    results = {"left": [], "right": []}
    with harness("lead") as dsh:

        def work(name):
            session = dsh.start_session(name)
            for turn in range(5):
                results[name].append(told(session.run(f"{name} {turn}")))

        working = [threading.Thread(target=work, args=(name,)) for name in results]
        for thread in working:
            thread.start()
        for thread in working:
            thread.join()
    return results


def close():
    """A harness that is closed while something runs that does not want to end."""
    dsh = harness("stubborn")
    session = dsh.start_session("stuck")
    begun = threading.Event()
    failed = []

    def work():
        try:
            session.run("x", on_notification=lambda _: begun.set())
        except Exception as error:
            failed.append(type(error).__name__)

    running = threading.Thread(target=work)
    running.start()
    begun.wait(20)
    process = dsh.client._proc
    dsh.close()
    running.join(20)
    return {"exit": process.returncode, "failed": failed}


if __name__ == "__main__":
    print(json.dumps(globals()[SCENARIO]()))
