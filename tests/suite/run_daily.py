"""The daily round of who debugs programs, with `reprise run` and real gdb: programs of this machine's distribution, each
recorded by one command and looked at with source and symbols, backwards."""
import contextlib
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import time

from suite.gdb import need_gdb
from suite.gdb_program import show
from suite.harness import test
from suite.run_program import own, replayed, run


def need(t, *programs):
    need_gdb(t)
    own(t)
    for program in programs:
        if not shutil.which(program):
            t.skip(f"{program} is not installed")


def write(t, **files):
    """NAME_EXTENSION=text, in the directory that the programs run in."""
    here = t.dir / "here"
    here.mkdir(exist_ok=True)
    for name, text in files.items():
        (here / name.replace("_", ".")).write_text(text)
    return here


def line_of(text, part):
    """The number of the line with that part."""
    return 1 + next(i for i, line in enumerate(text.splitlines()) if part in line)


JOBS = r"""#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
struct job { int id; char name[16]; int *result; struct job *next; };
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t more = PTHREAD_COND_INITIALIZER;
static struct job *queue;
static int left = 40;
static void work(struct job *j)
{
    int sum = 0;
    for (int i = 0; i < 1000; i++)
        sum += i * j->id;
    *j->result = sum;
}
static void *worker(void *arg)
{
    for (;;) {
        pthread_mutex_lock(&lock);
        while (!queue && left > 0)
            pthread_cond_wait(&more, &lock);
        struct job *j = queue;
        if (j)
            queue = j->next;
        pthread_mutex_unlock(&lock);
        if (!j)
            return arg;
        work(j);
        free(j);
    }
}
static void name(char *to, const char *from)
{
    while ((*to++ = *from++))
        ;
}
static struct job *make(int id)
{
    struct job *j = calloc(1, sizeof *j);
    j->id = id;
    j->result = malloc(sizeof *j->result);
    name(j->name, id == 29 ? "the one with the long name" : "short");
    return j;
}
int main(void)
{
    pthread_t t[4];
    for (int i = 0; i < 4; i++)
        pthread_create(t + i, 0, worker, 0);
    for (int i = 0; i < 40; i++) {
        struct job *j = make(i);
        pthread_mutex_lock(&lock);
        j->next = queue;
        queue = j;
        left--;
        pthread_cond_signal(&more);
        pthread_mutex_unlock(&lock);
        if (i % 3 == 0)
            usleep(100);
    }
    for (int i = 0; i < 4; i++)
        pthread_join(t[i], 0);
    return 0;
}
"""


@test("daily/threads", cost=6)
def threads(t):
    """A crash in one of five threads: which, and who wrote the pointer, in another one; steps both ways."""
    need(t, "gcc")
    here = write(t, jobs_c=JOBS)
    t.run("gcc", "-g", "-pthread", "-o", "jobs", "jobs.c", cwd=here)
    run(t, "./jobs", code=139)
    out = show(t, "debug", lines=(
        "backtrace", "info threads", "printf \"job %d\\n\", j->id", "watch -l j->result", "reverse-continue", "reverse-continue",
        "backtrace", "delete", "reverse-finish", "reverse-next", "info locals", "next", "next", "backtrace 1",
        "break make if id == 10", "reverse-continue", "printf \"made %d\\n\", id", "until " + str(line_of(JOBS, "j->result = malloc")),
        f"advance {line_of(JOBS, 'return j;')}", "printf \"name %s\\n\", j->name", "finish", "reverse-step", "backtrace 2"))
    t.has(out, r"\./jobs \(pid \d+\) crashes here")
    first, _, rest = out.partition("Hardware watchpoint")
    t.has(first, rf"(?m)^#0 .*\bwork \(j=0x\w+\) at jobs.c:{line_of(JOBS, '*j->result = sum')}$")
    t.has(first, r"(?m)^#1 .*\bworker \(")
    t.equal(len(re.findall(r"Thread [\d.]+ \"jobs\"", first)), 5, "its threads")
    t.has(first, "(?m)^job 29$")
    t.has(rest, r"(?m)^#0 .*\bname \(to=.* at jobs.c:" + str(line_of(JOBS, "while ((*to++")))
    t.has(rest, r"(?m)^#1 .*\bmake \(id=29\) at jobs.c:" + str(line_of(JOBS, "name(j->name")))
    t.has(rest, r"(?m)^#2 .*\bmain \(\)")
    call = line_of(JOBS, "name(j->name")
    # From the middle of a line newer gdbs go to the one before it, others to its beginning.
    shown = "|".join(rf"{line}\t.*\nj = 0x\w+\n{line + 1}\t.*\n{line + 2}\t.*\n#0  make \(id=29\) at jobs.c:{line + 2}"
                     for line in (call, call - 1))
    t.has(rest, rf"(?m)^0x\w+ in make \(id=29\) at jobs.c:{call}\n{call}\t.*\n(?:{shown})$",
          "what reverse-finish, reverse-next and twice next show")
    t.has(rest, "(?m)^made 10$")
    t.has(rest, "(?m)^name short$")
    t.has(rest, r"(?m)^#0  make \(id=10\) at jobs.c:" + str(line_of(JOBS, "return j;") + 1))


WORDS = r"""#include <stdio.h>
#include <stdlib.h>
#include <string.h>
struct node { char word[12]; int count; struct node *next; };
static struct node *table[4];
static unsigned hash(const char *s)
{
    unsigned h = 5381;
    while (*s)
        h = h * 33 + (unsigned char)*s++;
    return h & 3;
}
static void add(const char *word)
{
    struct node **p = &table[hash(word)];
    for (; *p; p = &(*p)->next)
        if ((*p)->word[0] == word[0] && !strcmp((*p)->word, word)) {
            (*p)->count++;
            return;
        }
    *p = calloc(1, sizeof **p);
    strcpy((*p)->word, word);
    (*p)->count++;
}
int main(void)
{
    char line[256];
    while (fgets(line, sizeof line, stdin))
        for (char *w = strtok(line, " \n"); w; w = strtok(0, " \n"))
            add(w);
    return 0;
}
"""
GUILTY = "incomprehensibilities"


@test("daily/heap", cost=6)
def heap(t):
    """A pointer in the heap overwritten long before it is followed: a watchpoint leads back to the copy that was too long."""
    need(t, "gcc")
    here = write(t, words_c=WORDS)
    t.run("gcc", "-g", "-O0", "-U_FORTIFY_SOURCE", "-o", "words", "words.c", cwd=here)
    text = [f"{GUILTY if i == 20 else f'word{i}'} the quick brown fox" for i in range(60)]
    run(t, "./words", typed="\n".join(text).encode(), code=139)
    out = show(t, "debug", lines=(
        "backtrace", "watch -l *p", "reverse-continue", "reverse-continue", "backtrace", "frame function add",
        "printf \"guilty %s\\n\", word", "delete", "reverse-finish", f"break {line_of(WORDS, '(*p)->count++;')} if (*p)->count == 20",
        "continue", "printf \"then %s\\n\", (*p)->word"))
    first, _, rest = out.partition("Hardware watchpoint")
    t.has(first, r"(?m)^#0 .*\badd \(word=0x\w+ \"\w+\"\) at words.c:" + str(line_of(WORDS, "if ((*p)->word")))
    t.has(rest, rf"(?m)^#\d .*\badd \(word=0x\w+ \"{GUILTY}\"\) at words.c:" + str(line_of(WORDS, "strcpy(")))
    t.has(rest, f"(?m)^guilty {GUILTY}$")
    t.has(rest, "(?m)^then (the|quick|brown|fox)$")


EXTENSION = r"""#define PY_SSIZE_T_CLEAN
#include <Python.h>
struct counter { PyObject_HEAD long slots[4]; PyObject *label; };
static void bump(struct counter *self, long slot, long by)
{
    self->slots[slot] += by;
}
static PyObject *add(PyObject *o, PyObject *args)
{
    long slot, by;
    if (!PyArg_ParseTuple(args, "ll", &slot, &by))
        return NULL;
    bump((struct counter *)o, slot, by);
    Py_RETURN_NONE;
}
static PyObject *show(PyObject *o, PyObject *args)
{
    struct counter *self = (struct counter *)o;
    (void)args;
    return PyUnicode_FromFormat("%S: %ld", self->label, self->slots[0]);
}
static int init(PyObject *o, PyObject *args, PyObject *names)
{
    struct counter *self = (struct counter *)o;
    (void)names;
    if (!PyArg_ParseTuple(args, "O", &self->label))
        return -1;
    Py_INCREF(self->label);
    return 0;
}
static PyMethodDef methods[] = {{"add", add, METH_VARARGS, 0}, {"show", show, METH_NOARGS, 0}, {0}};
static PyTypeObject type = {PyVarObject_HEAD_INIT(NULL, 0).tp_name = "counting.Counter",
                            .tp_basicsize = sizeof(struct counter), .tp_flags = Py_TPFLAGS_DEFAULT,
                            .tp_new = PyType_GenericNew, .tp_init = init, .tp_methods = methods};
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "counting", 0, -1, 0};
PyMODINIT_FUNC PyInit_counting(void)
{
    PyObject *m = PyModule_Create(&module);
    return m && PyType_Ready(&type) == 0 && PyModule_AddObject(m, "Counter", (PyObject *)&type) == 0 ? m : NULL;
}
"""
SCRIPT = """import counting
def fill(counter, words):
    for word in words:
        counter.add(len(word) // 2, 1)
counter = counting.Counter("words")
fill(counter, "a bb ccc dd eeeee incompre ff".split())
print(counter.show())
"""


@test("daily/python", cost=10)
def python(t):
    """A script whose extension in C writes past an array: the crash is the interpreter's, the watchpoint leads to the extension."""
    need(t, "gcc", "python3")
    about = t.run("python3", "-c", "import sys, sysconfig; print(sysconfig.get_paths()['include']); print(sys.executable)").text
    include, program = about.split("\n")[:2]
    if not pathlib.Path(include, "Python.h").exists():
        t.skip("Python.h is not installed (python3-dev)")
    here = write(t, counting_c=EXTENSION, script_py=SCRIPT)
    t.run("gcc", "-g", "-O0", "-shared", "-fPIC", "-I", include, "-o", "counting.so", "counting.c", cwd=here)
    run(t, program, "script.py", code=139)
    out = show(t, "debug", lines=(
        "frame function show", "printf \"label %p\\n\", ((struct counter *)o)->label", "watch -l ((struct counter *)o)->label",
        "reverse-continue", "backtrace 2", "printf \"slot %ld\\n\", slot", "reverse-finish", "reverse-next", "reverse-next", "info symbol $pc"))
    t.has(out, r"(?m)^#\d+ .*\bshow \(o=.* at counting.c:" + str(line_of(EXTENSION, "return PyUnicode_From")))
    t.has(out, r"(?m)^#0 .*\bbump \(self=0x\w+, slot=4, by=1\) at counting.c:" + str(line_of(EXTENSION, "slots[slot] += by")))
    t.has(out, r"(?m)^#1 .*\badd \(o=.* at counting.c:" + str(line_of(EXTENSION, "bump((")))
    t.has(out, "(?m)^slot 4$")
    t.has(out, rf"(?m)^{line_of(EXTENSION, 'if (!PyArg_ParseTuple(args, {}'.format(chr(34) + 'll'))}\t", "reverse-next before the call")


GO = """package main

import (
	"fmt"
	"os"
	"sync"
)

type account struct {
	name    string
	balance int
	history []int
}

func (a *account) take(n int) {
	a.balance -= n
	a.history = append(a.history, -n)
}

func worker(id int, jobs <-chan int, a *account, mu *sync.Mutex, wg *sync.WaitGroup) {
	defer wg.Done()
	for j := range jobs {
		mu.Lock()
		a.take(j)
		if a.balance < 0 {
			fmt.Fprintln(os.Stderr, "overdrawn by", j)
			fmt.Println(a.history[len(a.history)+j])
		}
		mu.Unlock()
	}
}

func main() {
	jobs := make(chan int)
	a := &account{name: "mine", balance: 100}
	var mu sync.Mutex
	var wg sync.WaitGroup
	for i := 0; i < 3; i++ {
		wg.Add(1)
		go worker(i, jobs, a, &mu, &wg)
	}
	for i := 0; i < 30; i++ {
		jobs <- i
	}
	close(jobs)
	wg.Wait()
	fmt.Println(a.name, a.balance)
}
"""


@test("daily/go", cost=15)
def go(t):
    """A Go program that panics in a goroutine: its source, its goroutines, a watchpoint backwards."""
    need(t, "go")
    here = write(t, account_go=GO)
    t.run("go", "build", "-gcflags=all=-N -l", "-o", "account", "account.go", cwd=here,
          env={"GOFLAGS": "-mod=mod", "GO111MODULE": "off", "HOME": str(t.dir), "GOCACHE": str(t.dir / "go"), "GOTOOLCHAIN": "local"})
    t.has(run(t, "./account", code=2).error, "panic: runtime error: index out of range")
    panics = line_of(GO, "a.history[len(")
    out = show(t, "debug", lines=(
        f"break account.go:{panics}", "reverse-continue", "backtrace 1", "printf \"balance %d\\n\", a.balance", "set language c",
        "watch -l a->balance", "reverse-continue", "reverse-continue", "backtrace 2", "delete", "reverse-finish", "info threads"))
    t.has(out, r"(?m)^#0 +runtime\.|runtime\.exit", "where it ends")
    t.has(out, r"gdb reads \S*/account, the build that the guest runs")
    t.has(out, rf"(?m)^#0 +main\.worker \(id=\d.*account.go:{panics}$")
    t.has(out, "(?m)^balance -5$")
    t.has(out, r"(?m)^Old value = -5\nNew value = 9$")
    t.has(out, rf"(?m)^#0 .*main\.\(\*account\)\.take \(.*account.go:{line_of(GO, 'a.balance -= n')}$")
    t.has(out, rf"(?m)^#1 .*main\.worker \(.*account.go:{line_of(GO, 'a.take(j)')}$")


def clone(t, url, *options):
    """A repository cloned in the guest, and what it has: the commit, and that it is whole."""
    script = f"git clone -q --no-hardlinks {url} copy && git -C copy rev-parse HEAD && git -C copy fsck --no-progress"
    return run(t, "sh", "-c", script, options=options)


@test("daily/git", cost=8)
def git(t):
    """`git clone`: its processes, what came, and a look at one of them."""
    need(t, "git")
    here = write(t)
    of = here / "origin"
    t.run("git", "init", "-q", of)
    for i in range(12):
        (of / f"file{i}").write_text("".join(f"{n}\n" for n in range(i, 300)))
        t.run("git", "add", ".", cwd=of)
        t.run("git", "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "-m", f"{i}", cwd=of)
    r = clone(t, f"file://{of}")
    t.equal(r.out, t.run("git", "rev-parse", "HEAD", cwd=of).out, "the commit that was cloned")
    t.check(not (here / "copy").exists(), "it was written to the host")
    tree = t.run(t.reprise, "ps", "--tree").text
    for command in ("git clone", "git-upload-pack", "git pack-objects|pack-objects --", "index-pack", "git -C copy fsck"):
        t.has(tree, rf"status 0 .*({command})")
    out = show(t, "gdb", "--process", "git#1", "--to", "exec:git#1", lines=(
        "break write", "continue", "backtrace 1", "continue", "reverse-continue", "backtrace 1", "finish"))
    t.has(out, "gdb reads /.*git, the build that the guest runs")
    t.equal(len(re.findall(r"(?m)^#0 .*write \(", out)), 2, "stops in write")
    replayed(t, r)
    git_daemon(t, here, of)


def git_daemon(t, here, of):
    """... and from a server, over the network; the replay has none."""
    with socket.create_server(("127.0.0.1", 0)) as s:
        port = s.getsockname()[1]
    server = subprocess.Popen(["git", "daemon", "--export-all", "--listen=127.0.0.1", f"--port={port}", f"--base-path={here}"],
                              stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    try:
        for _ in range(200):
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                break
            time.sleep(0.05)
        r = clone(t, f"git://10.0.2.2:{port}/origin", "--net")
    finally:
        os.killpg(server.pid, signal.SIGTERM)
        server.wait()
    t.equal(r.out, t.run("git", "rev-parse", "HEAD", cwd=of).out, "the commit that came over the network")
    replayed(t, r)


@test("daily/make", cost=15)
def make(t):
    """A small project built with make -j: every compiler of it known, and one of them looked at."""
    need(t, "gcc", "make")
    here = write(t, main_c="".join(f"int f{i}(int);\n" for i in range(4)) + "int main(void) { return "
                 + " + ".join(f"f{i}({i})" for i in range(4)) + "; }\n",
                 Makefile="OBJECTS = main.o f0.o f1.o f2.o f3.o\nprogram: $(OBJECTS)\n\tgcc -o $@ $(OBJECTS)\n"
                 "%.o: %.c\n\tgcc -g -c -o $@ $<\n")
    for i in range(4):
        (here / f"f{i}.c").write_text(f"#include <stdio.h>\nint f{i}(int x) {{ return x * {i + 1}; }}\n")
    r = run(t, "sh", "-c", "make -j4 && ./program", code=0 + 2 * 1 + 3 * 2 + 4 * 3)
    t.has(r.text, "gcc -o program")
    tree = t.run(t.reprise, "ps", "--tree").text
    for i in range(4):
        t.has(tree, rf"status 0 .*cc1 .*\bf{i}\.c\b")
    t.has(tree, r"status 20 .*\./program$")
    out = show(t, "gdb", "--process", "cc1#2", "--to", "exec:cc1#2", lines=(
        "break fopen64", "break fclose", "continue", "backtrace 1", "continue", "reverse-continue", "backtrace 1"))
    t.has(out, "gdb reads /.*/cc1, the build that the guest runs")
    t.has(out, r"(?m)^#0 .*f(open|close)\w* \(")


SAME_NAME = """mkfifo fifo
(read x <fifo; exec sleep 0.2) &
(exec sleep 0.3) &
until [ "$(cat /proc/$!/comm)" = sleep ]; do :; done
echo go >fifo
wait
"""


@test("daily/same-name", cost=5)
def same_name(t):
    """Two of one name that began in the other order: at exec:NAME#K the process NAME#K is the one that begins there. While
    its kernel still makes it, its file is known as well."""
    need(t)
    write(t, race_sh=SAME_NAME)
    run(t, "sh", "race.sh")
    pids = [int(re.search(rf"(?m)^ *(\d+) .*sleep {sleeps}$", t.run(t.reprise, "ps").text)[1]) for sleeps in ("0.2", "0.3")]
    t.equal(pids, sorted(pids), "the order in which they were forked")
    for process in ("sleep", "sleep#2", str(pids[0])):
        out = show(t, "gdb", "--to", "exec:sleep#2", "--process", process, lines=("info proc cmdline",))
        t.has(out, "(?m)^cmdline = 'sleep 0.2'$")
    t.has(show(t, "gdb", "--to", "exec:sleep#2", "--process", "sleep#1", lines=("info proc",)), f"process {pids[0]}")
    out = show(t, "gdb", "--to", "exec:sleep#2", lines=("break __set_task_comm", "reverse-continue", "finish", "monitor when"))
    at = re.search(r"(?m)^position +(\d+)", out)[1]
    out = show(t, "gdb", "--to", f"insn:{at}", "--process", str(pids[0]), lines=("info proc exe",))
    t.has(out, r"gdb reads /\S*/sleep, the build that the guest runs")


@test("daily/sqlite", cost=6)
def sqlite(t):
    """sqlite3 with a database on the host's disk: the statement that fails, met from the end."""
    need(t, "sqlite3")
    here = write(t)
    t.run("sqlite3", "data", "create table words(word text unique, n int); insert into words values('one', 1), ('two', 2);", cwd=here)
    before = (here / "data").read_bytes()
    r = run(t, "sqlite3", "data", typed=b"insert into words values('three', 3);\nselect sum(n) from words;\n"
            b"insert into words values('one', 4);\nselect count(*) from words;\n", code=1)
    t.equal(r.out, b"6\n3\n", "what it answers")
    t.has(r.error, "UNIQUE constraint failed")
    t.equal((here / "data").read_bytes(), before, "the host's database")
    out = show(t, "debug", lines=("break sqlite3_errmsg", "break sqlite3_close", "reverse-continue", "backtrace 1",
                                  "reverse-continue", "backtrace 1", "finish"))
    t.has(out, "ends here")
    t.has(out, r"(?m)^#0 .*\bsqlite3_errmsg \(")
    t.has(out, r"(?m)^#0 .*\bsqlite3_close \(")
    replayed(t, r)


# ---- what `ps` says, and what strace says of the same ----

def traced(text):
    """strace -f's lines as processes: {pid: (parent, [programs], end)}; `end` is a status or a signal. Threads are left out. Who
    was not waited for by its parent has process 1 as one in the end."""
    parent, programs, ends, calls, waited = {}, {}, {}, {}, set()
    for line in text.splitlines():
        found = re.match(r"(\d+) +(.*)", line)
        if not found:
            continue
        pid, what = int(found.group(1)), found.group(2)
        resumed = re.match(r"<\.\.\. \w+ resumed>(.*)", what)
        if resumed:
            what = calls.pop(pid) + resumed.group(1)
        if what.endswith("<unfinished ...>"):
            calls[pid] = what[:-len("<unfinished ...>")]
            continue
        made = re.match(r"(?:clone3?|v?fork)\(.* = (\d+)$", what)
        if made and "CLONE_THREAD" not in what:
            parent[int(made.group(1))] = pid
        executed = re.match(r"execve\(\"([^\"]*)\".* = 0$", what)
        if executed:
            programs.setdefault(pid, []).append(executed.group(1).rsplit("/", 1)[-1])
        gone = re.match(r"wait4\(.* = (\d+)$", what) or re.match(r"waitid\(.*si_pid=(\d+).* = 0$", what)
        if gone:
            waited.add(int(gone.group(1)))
        end = re.match(r"\+\+\+ (?:exited with (\d+)|killed by SIG(\w+)) ", what)
        if end:
            ends[pid] = int(end.group(1)) if end.group(1) else int(signal.Signals["SIG" + end.group(2)])
    return {pid: (parent.get(pid) if pid in waited else 1, programs.get(pid, []), ends[pid]) for pid in ends}


def listed(t):
    """The same of `ps --json`, of all processes of user space but the first."""
    rows = [json.loads(line) for line in t.run(t.reprise, "ps", "--json", timeout=600).out.splitlines()]
    result = {}
    for row in rows:
        if not row["kernel"] and row["pid"] == row["tid"] and row["pid"] > 1:
            t.check(row["pid"] not in result, f"process {row['pid']} twice")
            result[row["pid"]] = row
    return result


def compare_tree(t, files):
    """A parallel build of so many files, one with an error, one process killed and one left alone, under strace in the guest."""
    need(t, "gcc", "make", "strace")
    names = " ".join(f"f{i}.o" for i in range(files))
    here = write(t, bad_c="int f(void) { return }\n",
                 Makefile=f"all: {names} bad.o killed\nkilled:\n\tkill -TERM $$$$; :\n%.o: %.c\n\tgcc -c -o $@ $<\n",
                 build_sh="make -k -j4 >/dev/null 2>&1\nsh -c '(sleep 0.05; exit 5) & exit 4'\nsleep 0.1\n")
    for i in range(files):
        (here / f"f{i}.c").write_text(f"int f{i}(int x) {{ return x + {i}; }}\n")
    r = run(t, "sh", "-c", "strace -f -q -e trace=process -s 0 -o /tmp/said sh build.sh; cat /tmp/said",
            options=("--memory", "2G"), timeout=1200)
    said, have = traced(r.text), listed(t)
    t.check(len(said) > 3 * files, f"strace saw {len(said)} processes")
    first = min(said)
    for pid, (parent, programs, end) in sorted(said.items()):
        t.check(pid in have, f"ps has no process {pid} ({programs})")
        row = have[pid]
        if pid != first:  # whose parent, strace, strace says nothing of
            t.equal(row["parent"], parent, f"the parent of {pid}")
        t.equal(row["executions"], len(programs), f"programs that {pid} executed")
        if programs:
            t.equal(row["comm"], programs[-1][:15], f"the program of {pid}")
        t.equal(row.get("status", row.get("signal")), end, f"the end of {pid}")
    ends = {end for _, _, end in said.values()}
    t.check(ends >= {0, 1, 4, 5, int(signal.SIGTERM)}, f"how they ended: {ends}")
    others = {row["comm"] for pid, row in have.items() if pid not in said}
    t.equal(others, {"cat", "sh", "strace"}, "what strace did not see")
    tree = t.run(t.reprise, "ps", "--tree").text
    t.equal(sorted(int(x) for x in re.findall(r"(?m)^ +(\d+) +\d+ .*\S$", tree) if int(x) > 1), sorted(have), "the tree's processes")
    return f"{len(said)} processes"


@test("daily/tree", cost=15)
def tree(t):
    """Every process of a build, its parent, program and end: as strace has them."""
    return compare_tree(t, 6)


@test("daily/tree-500", cost=150)
def tree_500(t):
    """The same of 500."""
    return compare_tree(t, 165)


FAR = r"""#include <stdio.h>
#include <stdlib.h>
static const char table[3 << 20] = {1};
static int compare(const void *a, const void *b)
{
    int *volatile nothing = table[(*(const int *)a + *(const int *)b) & 3] ? 0 : (int *)a;
    return *nothing;
}
int main(void)
{
    int list[] = {4, 0, 4, 8};
    puts("sorts");
    fflush(stdout);
    qsort(list, 4, sizeof(int), compare);
    return 0;
}
"""

# In namespaces of their own: the C library and its loader are other builds (of the same code: gdb runs with them).
OTHER_BUILDS = r"""set -e
for file in "$1" "$2"; do
    real=$(readlink -f "$file")
    mount --bind "$3/${real##*/}" "$real"
done
shift 3
exec "$@"
"""


def other_builds(t):
    """Copies of the C library and its loader with another build ID; the words that begin such a namespace."""
    names = ("/lib/x86_64-linux-gnu/libc.so.6", "/lib64/ld-linux-x86-64.so.2")
    (t.dir / "other").mkdir()
    for name in names:
        real = pathlib.Path(name).resolve()
        data = bytearray(real.read_bytes())
        data[data.index(b"\4\0\0\0\x14\0\0\0\3\0\0\0GNU\0") + 16] ^= 0xff
        (t.dir / "other" / real.name).write_bytes(data)
        (t.dir / "other" / real.name).chmod(0o755)
    (t.dir / "enter").write_text(OTHER_BUILDS)
    within = ("unshare", "-rm", "--propagation", "private", "sh", t.dir / "enter", *names, t.dir / "other")
    if t.run(*within, "true", code=None).code:
        t.skip("mount namespaces of users are not allowed here")
    return within


@test("daily/elsewhere", cost=8)
def elsewhere(t):
    """A recording where none of the files are that its program ran: it replays, and gdb has the program's names, lines and
    variables, and goes up through the C library, of which the guest had read a part."""
    need(t, "gcc", "unshare")
    here = write(t, far_c=FAR)
    t.run("gcc", "-g", "-O1", "-o", "far", "far.c", cwd=here)
    within = other_builds(t)
    run(t, "./far", code=139)
    shutil.rmtree(here)
    t.equal(t.run(*within, t.reprise, "replay", "--verify").out, b"sorts\n", "what it printed")
    out = t.run(*within, t.reprise, "debug", "--", "-nx", "-batch", "-iex", "set debug-file-directory /nowhere", "-ex", "backtrace", "-ex",
                "info sharedlibrary", "-ex", "up-silently 99", "-ex", "print list", "-ex", "tbreak main", "-ex",
                "reverse-continue", "-ex", "info line compare", "-ex", "info symbol bsearch").text
    lines = [line_of(FAR, part) for part in ("return *nothing", "qsort(", "int list[]", "int compare")]
    t.has(out, rf"(?m)^#0 .*\bcompare \(.*\) at far\.c:{lines[0]}$")
    t.has(out, r"(?m)^#\d +0x\w+ in qsort_r \(\)")
    t.has(out, rf"(?m)^#\d +0x\w+ in main \(\) at far\.c:{lines[1]}$")
    t.has(out, r"(?m)^0x\w+ +0x\w+ +Yes .*libc\.so\.6$")
    t.has(out, r"(?m)^\$1 = \{4, 0, 4, 8\}$")
    t.has(out, rf"(?m)^Temporary breakpoint 1, main \(\) at far\.c:({lines[2] - 1}|{lines[2]})$")
    t.has(out, r'(?m)^Line \d+ of "far\.c" starts at address 0x\w+ <compare>')
    t.has(out, r"(?m)^bsearch in section \.text of target:.*libc\.so\.6$")
    kept = [e for e in t.events(t.dir / "data/reprise/latest") if e["type"] == "kept"]
    t.equal(len({e["inode"] for e in kept}), 3, "files that are kept")
    t.check(sum(e["size"] for e in kept) < 2_000_000, f"kept: {kept}")
