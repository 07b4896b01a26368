"""A Debian server with several vCPUs under load: what a machine with several CPUs does all day, each program checking what it
did. `tests/soak.py --kind servers`; not a test of every day, as it takes minutes."""
from suite.debian import Server

# Prints "NAME ok" for each part that went right.
LOAD = r"""
set -u
echo
ok() { echo "$1 ok"; }

mkdir -p /root/project && cd /root/project
for i in $(seq 10); do
    printf '#include <stdio.h>\n#include <string.h>\nint part%d(int n)\n{\n    char text[64];\n    snprintf(text, sizeof(text), "%%d", n);\n    int sum = %d;\n    for (size_t i = 0; i < strlen(text); i++)\n        sum = sum * 31 + text[i];\n    return sum %% 1000;\n}\n' $i $i >"part$i".c
done
{
    for i in $(seq 10); do echo "int part$i(int n);"; done
    echo '#include <stdio.h>'
    echo 'int main(void) { int sum = 0;'
    for i in $(seq 10); do echo "sum += part$i($i);"; done
    echo 'printf("%d\n", sum); return 0; }'
} >main.c
printf 'OBJ := $(patsubst %%.c,%%.o,$(wildcard *.c))\nall: $(OBJ)\n\tgcc -o all $(OBJ)\n%%.o: %%.c\n\tgcc -O2 -Wall -Werror -c -o $@ $<\n' >Makefile
make -s -j4 && ./all >first && make -s -B -j4 && ./all >second && cmp first second && ok make

rm -f /root/t.db
for i in 1 2 3 4; do
    sqlite3 -cmd '.timeout 100000' /root/t.db "create table if not exists t (n integer, v text); begin immediate; with recursive c(n) as (select 1 union all select n+1 from c where n<3000) insert into t select n, hex(n*n) from c; commit;" &
done
wait
[ "$(sqlite3 /root/t.db 'select count(*), sum(n) from t; pragma integrity_check;' | tr '\n' ' ')" = '12000|18006000 ok ' ] && ok sqlite

ab -q -n 1000 -c 8 http://127.0.0.1/ >/root/ab.log 2>&1
grep -q '^Complete requests: *1000$' /root/ab.log && grep -q '^Failed requests: *0$' /root/ab.log && ok nginx

systemctl start postgresql
as() { su postgres -c "cd /tmp; $1"; }
for i in $(seq 60); do as 'psql -qc "select 1"' >/dev/null 2>&1 && break; sleep 1; done
as 'createdb bank && pgbench -q -i -s 1 bank && pgbench -n -c 4 -j 4 -t 100 bank' >/root/pg.log 2>&1
[ "$(as "psql -Atc 'select (select sum(abalance) from pgbench_accounts) = sum(delta), (select sum(bbalance) from pgbench_branches) = sum(delta), count(*) from pgbench_history' bank")" = 't|t|400' ] && ok postgresql
systemctl stop postgresql && ok stopped

stress-ng --cpu 4 --vm 2 --vm-bytes 32M --futex 4 --sem 4 --pthread 4 --switch 4 --fork 4 --mutex 4 --verify -t 2s >/root/stress.log 2>&1 &&
    grep -q 'successful run completed' /root/stress.log && ok stress-ng

# All of it at once.
make -s -B -j4 >/root/again.log 2>&1 &
ab -q -n 500 -c 4 http://127.0.0.1/ >/root/ab2.log 2>&1 &
stress-ng --vm 1 --vm-bytes 16M --switch 2 --verify -t 1s >/root/stress2.log 2>&1 &
sqlite3 /root/t.db 'create index i on t(v); pragma integrity_check' >/root/sql2.log
wait
[ "$(./all)" = "$(cat first)" ] && [ "$(cat /root/sql2.log)" = ok ] && grep -q '^Failed requests: *0$' /root/ab2.log &&
    grep -q 'successful run completed' /root/stress2.log && ok together
[ -z "$(dmesg | grep -E 'BUG|WARNING|Oops|soft lockup|rcu:.*stall|general protection')" ] && ok kernel
for log in /root/*.log; do echo "--- $log"; tail -n 20 $log; done
"""
PARTS = ("make", "sqlite", "nginx", "postgresql", "stopped", "stress-ng", "together", "kernel")


def one(t, name, *options):
    """A recording of all that, powered off, and its replay."""
    s = Server(t, name, *options)
    s.ready(600)
    # Not by ssh: with chaos it is minutes at times until a packet is answered.
    # A service may have some 1,100 threads there; those of stress-ng's that make threads want more at times. Without
    # CAP_SYS_NICE its `mutex` makes no SCHED_FIFO threads: the first could keep the one that made it from running until
    # the two seconds are over, which it then calls "could not create any pthreads".
    (t.dir / "load.sh").write_text(LOAD)
    s.ssh("cat >/root/load.sh; systemd-run -qp TasksMax=infinity -p CapabilityBoundingSet=~CAP_SYS_NICE sh -c 'bash /root/load.sh >/dev/console 2>&1; systemctl poweroff'", code=None,
          stdin=open(t.dir / "load.sh", "rb"))
    t.equal(s.finish(3600), 0, "the recorder's exit code")
    said = s.log.read_text(errors="replace").replace("\r", "")
    for part in PARTS:
        t.has(said, rf"(?m)^{part} ok$")
    r = s.verify(timeout=3600)
    end = t.events(name)[-1]
    return f"{end['position'] / 1e9:.1f} G instructions, {r.seconds:.0f} s to replay"


def soak(t, rnd):
    """Four vCPUs, without and with chaos; and 32 that boot."""
    seed = str(rnd.getrandbits(32))
    print("     plain: " + one(t, "rec", "--cpus", "4", "--seed", seed), flush=True)
    chaos = rnd.randrange(1, 1 << 32)
    print(f"     chaos {chaos}: " + one(t, "chaos", "--cpus", "4", "--seed", seed, f"--chaos={chaos}"), flush=True)
    s = Server(t, "many", "--cpus", "32", "--seed", seed)
    s.ready(600)
    t.equal(s.ssh("nproc").strip(), "32", "CPUs")
    s.off()
    s.verify(timeout=3000)
