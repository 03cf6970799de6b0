"""Plays streams to the Python SDK of DeepSeek Harness and prints what it made of them.

Reads one JSON line per stream from stdin, `{"player": PATH, "script": PATH, "plan": [[NAME, ...], ...]}`, and plays each
in this one process, through a runtime process of its own (the player). Prints a line of JSON with what there is to
compare and how many of the lines that follow belong to it: one per notification, `METHOD<TAB>PARAMS`.
"""

import json
import queue
import sys
import threading

from deepseek_harness import DeepSeekHarness, HarnessClient, Notification, Session
from deepseek_harness.errors import JsonRpcError

# Nothing here takes longer than a moment; what does not end is reported instead of waited for.
BOUND_SECONDS = 20.0


def dumped(value):
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


class Begun:
    """Something that goes on in a thread of its own."""

    def __init__(self, work):
        self.value = None
        self.error = None

        def go():
            try:
                self.value = work()
            except BaseException as error:
                self.error = error

        self.thread = threading.Thread(target=go, daemon=True)
        self.thread.start()

    def join(self):
        self.thread.join(BOUND_SECONDS)
        if self.thread.is_alive():
            self.error = TimeoutError("it did not end")


class Stream:
    def __init__(self, player, script):
        self.harness = DeepSeekHarness(cwd="/", _launch_args=(player, script))
        self.harness.start()
        self.client: HarnessClient = self.harness.client
        self.watches, self.watched, self.runs, self.requests = [], [], [], []

    def play(self, plan):
        for name, *words in plan:
            getattr(self, name.replace(" ", "_"))(*words)
        # What was written has been read when the last `next` was answered, or the process has ended.
        for watch in range(len(self.watches)):
            self.unwatch(watch)

    def watch(self, root):
        self.watches.append(self.client.subscribe_session_notifications(root))
        self.watched.append([])

    def unwatch(self, watch):
        subscription, seen = self.watches[watch], self.watched[watch]
        subscription.close()
        try:
            subscription.drain(seen.append)
        except BaseException:
            pass

    def run(self, root):
        session = Session(self.harness, root)
        self.runs.append((root, Begun(lambda: session.run("go"))))

    def request(self, method, params):
        self.requests.append(Begun(lambda: self.client._request_raw(method, params)))

    def next(self):
        # A reader that has ended answers nobody, and a request made after that waits for its bound.
        reader = self.client._reader_thread
        reader.join(0 if self.reading() else BOUND_SECONDS)
        if not reader.is_alive():
            raise RuntimeError("the reader of the SDK has ended")
        self.client._request_raw("stream/next", {}, timeout_seconds=BOUND_SECONDS)

    def reading(self):
        """Whether the end of the stream has not been put into the queue of what matched nothing."""
        return not any(isinstance(item, BaseException) for item in list(self.client._notifications.queue))

    def join_run(self, run):
        self.runs[run][1].join()

    def join_request(self, request):
        self.requests[request].join()


def error_of(error):
    if error is None:
        return None
    if isinstance(error, JsonRpcError):
        return ["JsonRpcError", f"{error.code} {error.message}"]
    return [type(error).__name__, ""]


def play(job, out):
    stream = Stream(job["player"], job["script"])
    failed = None
    try:
        stream.play(job["plan"])
    except BaseException as error:
        failed = f"{type(error).__name__}: {error}"
    # At its end the reader puts an exception into every queue; a stream that died has all its notifications before it.
    unmatched = []
    while True:
        try:
            item = stream.client._notifications.get_nowait()
        except queue.Empty:
            break
        if isinstance(item, Notification):
            unmatched.append(item)
    lines = []

    def listed(notifications):
        lines.extend(f"{one.method}\t{dumped(one.payload)}" for one in notifications)
        return len(notifications)

    runs = []
    for root, begun in stream.runs:
        result = begun.value
        runs.append({
            "root": root,
            "error": error_of(begun.error),
            "final_response": result.final_response if result else None,
            "finish_reason": result.finish_reason if result else None,
            "events": [dumped(event) for event in result.events] if result else [],
            "notifications": listed(result.notifications) if result else 0,
        })
    answer = {
        "failed": failed,
        "runs": runs,
        "watched": [listed(seen) for seen in stream.watched],
        "unmatched": listed(unmatched),
        "requests": [
            {"error": error_of(begun.error), "result": None if begun.error else dumped(begun.value)}
            for begun in stream.requests
        ],
        "lines": 0,
    }
    answer["lines"] = len(lines)
    out.write(dumped(answer) + "\n")
    for line in lines:
        out.write(line + "\n")
    out.flush()
    stream.harness.close()


def main():
    # A lone surrogate is text to Python; it is written as the bytes it would have.
    out = open(sys.stdout.fileno(), "w", encoding="utf-8", errors="surrogatepass", newline="\n", closefd=False)
    for line in sys.stdin:
        play(json.loads(line), out)


if __name__ == "__main__":
    main()
