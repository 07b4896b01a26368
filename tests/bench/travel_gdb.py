"""Runs in gdb (tests/bench/travel.py starts it): times commands and writes them as JSON lines.

TRAVEL_TARGET: what to connect to; TRAVEL_OUT: a file; TRAVEL_SCRIPT: commands, one a line.
"""
import json
import os
import time

import gdb

for command in ("pagination off", "confirm off", "architecture i386:x86-64", "remotetimeout 90",
                "can-use-hw-watchpoints 1"):
    gdb.execute("set " + command)
with open(os.environ["TRAVEL_OUT"], "w") as out:
    script = ["target remote " + os.environ["TRAVEL_TARGET"]]
    for line in script + os.environ["TRAVEL_SCRIPT"].splitlines():
        began, error = time.monotonic(), ""
        try:
            text = gdb.execute(line, to_string=True)
        except gdb.error as e:
            text = error = str(e)
        took = time.monotonic() - began
        rip = ""
        try:
            rip = int(gdb.parse_and_eval("(unsigned long)$rip")) & (1 << 64) - 1
        except gdb.error:
            pass
        out.write(json.dumps({"command": line, "seconds": took, "rip": rip, "error": error,
                              "text": text[-300:]}) + "\n")
        out.flush()
        if error:
            break
