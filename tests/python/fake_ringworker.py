#!/usr/bin/python3
"""`ringworker solo` for tests: trains with the script above it as core 0, and with children of a zygote of its own.

FAKE_RINGWORKER, JSON in the environment, says what goes wrong: {"exit": 3} ends it behind step 0, {"wait": true} has it
wait there for a SIGINT, which ends the job. {"stay": true} has it close the lane there, and stay until a SIGTERM;
{"stay": "deaf"} also then.
"""
import argparse
import json
import os
import pathlib
import signal
import socket
import sys
import tempfile

sys.dont_write_bytecode = True

import fake_worker


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("command", choices=["solo"])
    parser.add_argument("--checkpoint", required=True, type=pathlib.Path)
    parser.add_argument("--cores", type=int, default=1)
    parser.add_argument("--script")
    parser.add_argument("--python")
    words = sys.argv[1:]
    end = words.index("--") if "--" in words else len(words)
    options, arguments = parser.parse_args(words[:end]), words[end + 1:]
    trouble = json.loads(os.environ.get("FAKE_RINGWORKER", "{}"))
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    script = fake_worker.Child(socket.socket(fileno=3))
    facts, state = script.start()
    children = [script]
    with tempfile.TemporaryDirectory(prefix="ringmaster-python-test-") as folder:
        if options.cores > 1:
            zygote = fake_worker.Zygote(folder, arguments, script=options.script, program=options.python)
            for number in range(1, options.cores):
                child = zygote.fork(core_number=number)
                child.join(state)
                children.append(child)
        steps = facts["steps"] or facts["epochs"] * facts["samples"] // facts["batch"]
        plan = {"samples": facts["samples"], "shards": facts["shards"] or min(8, facts["batch"]), "batch": facts["batch"],
                "seed": facts["seed"]}
        try:
            fake_worker.train(children, state, 1, **plan)
            if "exit" in trouble:
                os._exit(trouble["exit"])
            if "stay" in trouble:
                if trouble["stay"] == "deaf":
                    signal.signal(signal.SIGTERM, signal.SIG_IGN)
                os.close(3)
                while True:
                    signal.pause()
            if "wait" in trouble:
                print("waits", flush=True)
                signal.sigwait([signal.SIGINT])
                steps = 0
            fake_worker.train(children, state, steps, **plan)
        except fake_worker.Raised as raised:
            print(json.dumps(raised.told), flush=True)
            os._exit(1)
        options.checkpoint.mkdir(exist_ok=True)
        state.write(options.checkpoint / "model.safetensors")
        for child in children:
            child.end()
        if options.cores > 1:
            zygote.close()


if __name__ == "__main__":
    main()
