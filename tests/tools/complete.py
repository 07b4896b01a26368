#!/usr/bin/env python3
"""What a shell makes of the beginning of a line and TAB: complete.py SHELL SCRIPT LINE prints the line then.

bash and zsh run at a pseudo-terminal, as for somebody who types; what was completed is printed by the shell itself, so
that nothing depends on time. SCRIPT "-": as it is installed. fish says by itself what it would offer: all of that."""
import os
import pty
import select
import subprocess
import sys
import time


def quoted(path):
    return "'" + path.replace("'", "'\\''") + "'"


def fish(script, line):
    source = "" if script == "-" else f"source {quoted(script)}; "
    return subprocess.run(["fish", "--no-config", "-c", source + 'complete -C "$LINE"'] if script != "-" else
                          ["fish", "-c", 'complete -C "$LINE"'],
                          env=dict(os.environ, LINE=line), check=True, stdout=subprocess.PIPE).stdout.decode()


BEGIN = {
    "bash": (["bash", "--norc", "--noprofile", "-i"],
             "bind 'set enable-bracketed-paste off'; bind 'set bell-style none'; bind 'set page-completions off'; "
             "bind 'set completion-query-items 0'; PS1=; PS2=; set +o history; ",
             "source /usr/share/bash-completion/bash_completion; "),
    "zsh": (["zsh", "-f", "-i"],
            "PS1=; PS2=; RPS1=; bindkey -e; unsetopt prompt_sp zle_bracketed_paste; unset zle_bracketed_paste; "
            "LISTMAX=100000; fpath+=(/usr/share/zsh/vendor-completions); autoload -U compinit; compinit -u -D; ", ""),
}


def typed(shell, script, line):
    argv, setting, installed = BEGIN[shell]
    child, master = pty.fork()
    if child == 0:
        os.environ.update(TERM="dumb", INPUTRC="/dev/null", COLUMNS="200", HISTFILE="")
        os.execvp(argv[0], argv)
    out = b""

    def until(mark):
        nonlocal out
        end = time.monotonic() + 60
        while mark not in out and time.monotonic() < end:
            if select.select([master], [], [], 1)[0]:
                try:
                    out += os.read(master, 65536)
                except OSError:
                    break
        if mark not in out:
            sys.exit(f"{shell} did not answer; it said: {out.decode(errors='replace')}")

    source = installed if script == "-" else f"source {quoted(script)}; "
    os.write(master, (setting + source + "echo rea''dy\n").encode())
    until(b"ready")
    # C-a and C-e: the line becomes an argument of printf.
    os.write(master, line.encode() + b"\t\x01printf '<<%s>>\\n' '\x05'\n")
    until(b">>\r\n")
    os.close(master)
    os.waitpid(child, 0)
    return out.rsplit(b"<<", 1)[1].split(b">>")[0].decode() + "\n"


if len(sys.argv) != 4:
    sys.exit(__doc__)
sys.stdout.write(fish(*sys.argv[2:]) if sys.argv[1] == "fish" else typed(*sys.argv[1:]))
