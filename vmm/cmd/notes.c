/* See notes.h. */
#include "cmd/notes.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/text.h"
#include "cmd/cmd.h"
#include "cpu/engine.h"
#include "cpu/vcpu.h"
#include "inspect/guest_linux.h"
#include "inspect/running.h"

#define COMMAND_MAX 4096

/* A word as a shell takes it; what does not fit is left out. */
static size_t put_word(const char *word, char *out, size_t room)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                "%+,-./:=@_";
    bool quote = !*word || word[strspn(word, plain)];
    size_t n = 0;
    if (quote && n < room)
        out[n++] = '\'';
    for (; *word; word++) {
        const char *as = *word == '\'' ? "'\\''" : (const char[]){*word, 0};
        if (n + strlen(as) < room)
            n += (size_t)snprintf(out + n, room - n, "%s", as);
    }
    if (quote && n < room)
        out[n++] = '\'';
    return n;
}

static void command_line(int argc, char **argv, char out[COMMAND_MAX + 1])
{
    size_t n = (size_t)snprintf(out, COMMAND_MAX, "%s", argv[0]);
    for (int i = 1; i < argc && n + 2 < COMMAND_MAX; i++) {
        out[n++] = ' ';
        n += put_word(argv[i], out + n, COMMAND_MAX - n);
    }
    out[n] = 0;
}

int notes_origin(struct recorder *r, struct machine *m, int argc, char **argv, struct err *err)
{
    char date[64], host[256] = "", command[COMMAND_MAX + 1];
    if (gethostname(host, sizeof(host) - 1))
        host[0] = 0;
    command_line(argc, argv, command);
    int code = recorder_note(r, m, NOTE_BEGAN, text_time((u64)time(NULL), date), err);
    if (!code && host[0])
        code = recorder_note(r, m, NOTE_HOST, host, err);
    return code ? code : recorder_note(r, m, NOTE_COMMAND, command, err);
}

static void on_lacking(void *opaque, struct machine *m, const char *text, const char *has)
{
    struct lacking *l = opaque;
    struct running running;
    struct running_task task = {0};
    struct symbols symbols;
    struct err ignored;
    char who[96] = "a program", comm[sizeof(task.comm)];
    if (l->text[0])
        return;
    if (!guest_symbols_read(&symbols, m, &ignored)) {
        if (running_learn(&running, m, &symbols) && running_look(&running, m, &task))
            snprintf(who, sizeof(who), "'%s' (process %d)",
                     text_printable(task.comm, comm, sizeof(comm)), task.tgid);
        symbols_free(&symbols);
    }
    snprintf(l->text, sizeof(l->text),
             "%s used %s at %" PRIx64 ", which the CPU model %s lacks: --cpu %s has it", who, text,
             machine_vcpu(m)->rip, cpu_model_name(machine_cpu_model(m)), has);
    fprintf(stderr, "\r\nreprise: %s\r\n", l->text); /* the terminal may be raw */
}

void lacking_watch(struct lacking *l, struct machine *m)
{
    l->text[0] = 0;
    machine_set_lacking(m, on_lacking, l);
}
