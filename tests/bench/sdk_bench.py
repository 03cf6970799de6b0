"""One run of the bench stream through the Python SDK: `sdk_bench.py PLAYER SCRIPT ROOTS`; prints one line of JSON.

CPU time is that of this process, between the prompt and the result; what is compared is summed up after that.
"""

import hashlib
import json
import resource
import sys
import threading
import time

from deepseek_harness import DeepSeekHarness


def cpu():
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def checksum(notifications):
    digest = hashlib.sha256()
    for one in notifications:
        params = json.dumps(one.payload, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        digest.update(f"{one.method}\t{one.payload.get('sessionId', '-')}\t{params}\n".encode())
    return digest.hexdigest()


def main():
    player, script, roots = sys.argv[1], sys.argv[2], int(sys.argv[3])
    harness = DeepSeekHarness(cwd="/", _launch_args=(player, script))
    harness.start()
    ids = ["bench-root"] if roots == 1 else [f"bench-root-{number}" for number in range(roots)]
    results = [None] * roots

    def run(number):
        results[number] = harness.run("go", session_id=ids[number])

    threads = [threading.Thread(target=run, args=(number,)) for number in range(roots)]
    cpu_before, before = cpu(), time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    wall, used = time.monotonic() - before, cpu() - cpu_before
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    outcome = {
        "cpu_seconds": used,
        "wall_seconds": wall,
        "peak_bytes": peak,
        "runs": [
            {
                "final_response": result.final_response,
                "finish_reason": result.finish_reason,
                "notifications": len(result.notifications),
                "checksum": checksum(result.notifications),
            }
            for result in results
        ],
    }
    harness.close()
    print(json.dumps(outcome))


if __name__ == "__main__":
    main()
