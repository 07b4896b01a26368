/* Profilers are told what code is made of what (engine_set_code_log). Runs parked. */
#include "code_log.h"

#include <Zydis/Mnemonic.h>

#include "cpu/x86/park.h"

static void tell(const struct code *k, u32 at, size_t bytes, struct engine_code what)
{
    what.host = k->rx + at;
    what.size = (u32)bytes;
    k->log.made(k->log.opaque, &what);
}

void code_log_set(struct core *c, const struct engine_code_log *log)
{
    struct code *k = dbt_of(c)->code;
    const struct {
        u32 from, to;
        const char *name;
    } stubs[] = {{k->enter, k->exit_common, "enter"},
                 {k->exit_common, k->ind_miss, "leave"},
                 {k->ind_miss, k->second[0], "indirect branch not in the jump cache"},
                 {k->second[0], k->slow_common, "jump cache, second look"},
                 {k->slow_common, k->unwind, "slow load or store"},
                 {k->unwind, k->stack[0][0][0][0], "leave for a fault"},
                 {k->stack[0][0][0][0], k->fixed, "another page of the stack"}};
    core_park(c);
    k->log = log ? *log : (struct engine_code_log){0};
    for (unsigned i = 0; log && i < ARRAY_SIZE(stubs); i++)
        tell(k, stubs[i].from, stubs[i].to - stubs[i].from,
             (struct engine_code){.kind = ENGINE_CODE_STUB, .name = stubs[i].name});
}

void code_log_block(struct dbt *d, const struct block *b, u32 at, size_t bytes)
{
    tell(d->code, at, bytes,
         (struct engine_code){
             .kind = ENGINE_CODE_BLOCK, .guest = b->lin, .user = (b->mode & MODE_IDX) == IDX_USER});
}

void code_log_single(struct dbt *d, const struct insn *in, size_t bytes)
{
    const char *name = ZydisMnemonicGetString(in->mnemonic);
    tell(d->code, in->snippet, bytes,
         (struct engine_code){.kind = ENGINE_CODE_SINGLE, .name = name ? name : "?"});
}
