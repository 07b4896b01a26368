#!/usr/bin/env python3
"""What a shell makes of the beginning of a line and TAB: complete.py SHELL SCRIPT LINE... prints the lines then, each
with a line == behind it.

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


def fish(script, lines):
    source = "" if script == "-" else f"source {quoted(script)}\n"
    ask = "\n".join(f"complete -C {quoted(line)}\necho ==" for line in lines)
    return subprocess.run(["fish", *(["--no-config"] if source else []), "-c", source + ask], check=True,
                          stdout=subprocess.PIPE).stdout.decode()


BEGIN = {
    "bash": (["bash", "--norc", "--noprofile", "-i"],
             "bind 'set enable-bracketed-paste off'; bind 'set bell-style none'; bind 'set page-completions off'; "
             "bind 'set completion-query-items 0'; PS1=; PS2=; set +o history; ",
             "source /usr/share/bash-completion/bash_completion; "),
    "zsh": (["zsh", "-f", "-i"],
            "PS1=; PS2=; RPS1=; bindkey -e; unsetopt prompt_sp zle_bracketed_paste; unset zle_bracketed_paste; "
            "LISTMAX=100000; fpath+=(/usr/share/zsh/vendor-completions); autoload -U compinit; compinit -u -D; ", ""),
}


def typed(shell, script, lines):
    argv, setting, installed = BEGIN[shell]
    child, master = pty.fork()
    if child == 0:
        os.environ.update(TERM="dumb", INPUTRC="/dev/null", COLUMNS="200", HISTFILE="")
        os.execvp(argv[0], argv)

    def until(mark):
        out, end = b"", time.monotonic() + 60
        while mark not in out and time.monotonic() < end:
            if select.select([master], [], [], 1)[0]:
                try:
                    out += os.read(master, 65536)
                except OSError:
                    break
        if mark not in out:
            sys.exit(f"{shell} did not answer; it said: {out.decode(errors='replace')}")
        return out

    source = installed if script == "-" else f"source {quoted(script)}; "
    os.write(master, (setting + source + "echo rea''dy\n").encode())
    until(b"ready")
    made = []
    for line in lines:
        # C-a and C-e: the line becomes an argument of printf, which prints what nobody has typed.
        os.write(master, line.encode() + b"\t\x01printf '<%s>\\n' '<\x05>'\n")
        made.append(until(b">>\r\n").rsplit(b"<<", 1)[1].split(b">>")[0].decode())
    os.close(master)
    os.waitpid(child, 0)
    return "".join(line + "\n==\n" for line in made)


if len(sys.argv) < 4:
    sys.exit(__doc__)
sys.stdout.write(fish(sys.argv[2], sys.argv[3:]) if sys.argv[1] == "fish" else typed(*sys.argv[1:3], sys.argv[3:]))
