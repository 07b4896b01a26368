/*
 * checkpoint_forge DIR N HOW: changes checkpoint file N of a recording, all checksums right, those
 * of the later files too.
 *
 *     instant   the file says that it is 1000 positions and ns later; its state does not
 *     both      file and state say so
 *     state     RSP of its state is another one
 *     past      file and state lie after the recording's end
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cpu/vcpu.h"
#include "tests/fuzz/checkpoint_edit.h"

/* Where the state has a field of the CPU, its first component. */
static u8 *cpu_field(struct checkpoint_edit *e, const char *name)
{
    u8 *at = e->meta;
    for (size_t i = 0; i < vcpu_state_desc.nfields; i++) {
        const struct state_field *f = &vcpu_state_desc.fields[i];
        if (!strcmp(f->name, name))
            return at;
        at += (size_t)f->elem * f->count;
    }
    abort();
}

static void later(struct checkpoint_edit *e, u64 by, bool state)
{
    e->h.position += by;
    e->h.time += by;
    if (state)
        memcpy(cpu_field(e, "position"), &e->h.position, sizeof(e->h.position));
}

int main(int argc, char **argv)
{
    char path[4200];
    if (argc != 4)
        return 2;
    u64 parent = 0;
    unsigned which = (unsigned)atoi(argv[2]), n = which;
    for (;; n++) {
        struct checkpoint_edit e;
        snprintf(path, sizeof(path), "%s/checkpoints/%06u", argv[1], n);
        if (!checkpoint_edit_open(&e, path))
            break;
        if (n > which)
            e.h.parent = parent;
        else if (!strcmp(argv[3], "state"))
            cpu_field(&e, "gpr")[RSP * 8] ^= 0x40;
        else
            later(&e, strcmp(argv[3], "past") ? 1000 : 1ull << 40, strcmp(argv[3], "instant"));
        parent = checkpoint_edit_close(&e, path);
    }
    return n == which;
}
