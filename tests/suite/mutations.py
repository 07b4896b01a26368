"""Each check that an optimisation of dbt must make, or a step of KVM, is taken out in turn: the random programs have to
notice."""
import os
import shutil

from suite.harness import IMAGES, ROOT, Failure, test

DBT = "vmm/cpu/dbt/"
X86 = "vmm/cpu/x86/"
# What is broken, where, and what stands there instead.
MUTATIONS = (
    ("the second page of an instruction is not watched", DBT + "cache.c",
     "if (b->phys2)\n        b->page2_next = page_add(d, b->phys2, bi | SECOND_PAGE);", ""),
    ("who leaves a path pays for all of it", DBT + "path.c",
     "if (t->count > n) {", "if (false) {"),
    ("a path may be left before its budget check", DBT + "translate.c",
     "return i;\n        if (t->way[i] != WAY_END)\n            break;", "return i;"),
    ("the wrong way out of a path", DBT + "path.c",
     "put_edge(t, t->way[i] == WAY_TAKEN ? tr_next", "put_edge(t, t->way[i] != WAY_TAKEN ? tr_next"),
    ("a path goes on with the flags of the other way", DBT + "translate.c",
     "if (!ends_scan(&t->in[i]) && !counts_branches(&t->d->c))", "if (!counts_branches(&t->d->c))"),
    ("a guard looks at the first operand only", DBT + "guard.c",
     "u32 last = PAGE_SIZE - (u32)(g->hi - g->lo);", "u32 last = PAGE_SIZE - 1;"),
    ("a guard does not ask whether it may write", DBT + "guard.c",
     "tlb + (g->write ? offsetof(struct tlb_entry, wtag) : 0)", "tlb"),
    ("a guard takes a register for what it was before a SUB", DBT + "guard.c",
     "got = sum(v[to], -(i64)in->imm2);", "got = v[to];"),
    ("a guard takes a register for known that something else wrote", DBT + "guard.c",
     "v[r] = (struct value){(i16)fresh, 0};", ""),
    ("RSP is taken for an index", DBT + "guard.c", " || g->index == RSP)", ")"),
    ("RSP is taken for an index that has the same value", DBT + "guard.c", " && !(index && r == RSP)", ""),
    ("a guard takes another register than the one with the value", DBT + "guard.c",
     "if (v[liked].root == root)", "if (true)"),
    ("a guard before the budget is taken", DBT + "guard.c", "(i < t->check || !place(", "(!place("),
    ("what is relative to RIP is relative to the instruction", DBT + "guard.c",
     "in->rip_rel ? tr_next(t, i) + (u64)in->disp", "in->rip_rel ? tr_lin(t, i) + (u64)in->disp"),
    ("what 32-bit code pushes has 8 bytes", DBT + "guard.c", "return in->code == CODE_64 ? 8 : 4;", "return 8;"),
    ("a guard has RAX while that has the flags", DBT + "guard.c",
     "if (g->base_reg == RAX || g->index_reg == RAX)\n        put_saved(t, false);", ""),
    ("flags are not restored where a guard in front fails", DBT + "guard.c",
     "*at = e->p;\n        if (c->live)\n            put_restore_flags(t);", "*at = e->p;"),
    ("flags are not restored where a guard in the middle fails", DBT + "guard.c",
     "if (c->live)\n        put_restore_flags(t);\n    put_give_back", "put_give_back"),
    ("a guard's slot is in a register for ever", DBT + "put.c", "if (!alone)\n        t->s1_has = NOREG;", ""),
    ("RSP has not moved where it is read", DBT + "put.c", "if (!alone || needs_sp(&t->in[i]))", "if (!alone)"),
    ("a target is in the register that a slot's value goes into", DBT + "put.c",
     "t->group[t->member[i][OF_INSN].group].found == IN_REGISTER", "true"),
    ("a guard of the stack does not ask whether it may write", DBT + "guard.c",
     "page + (g->write ?", "page + (false ?"),
    ("a guard does not follow pushes and pops", DBT + "guard.c", "v[RSP] = sp;", "v[RSP].root = RSP;"),
    ("a guard in the middle does not keep flags", DBT + "guard.c",
     "if (t->live[i])\n        put_saved(t, true);", ""),
    ("who leaves by a guard in the middle pays for all", DBT + "guard.c", "put_give_back(t, i);", ""),
    ("a guard in the middle goes back to the block's start", DBT + "guard.c",
     "put_to_plain(t, tr_lin(t, i), g->slot);", "put_to_plain(t, t->lin, g->slot);"),
    ("two guards have one register at a time", DBT + "guard.c",
     "t->group[k].found == IN_REGISTER && t->group[k].reg == reg &&\n            overlap(t, &t->group[k], g)", "false"),
    ("the TSC is as of after the budget was taken", DBT + "inlined.c",
     "i >= t->check ? (int)(t->count - i) : -(int)i", "(int)(t->count - i)"),
    ("the TSC is as of a block's end", DBT + "inlined.c", "(int)(t->count - i) : -(int)i", "0 : -(int)i"),
    ("CR4.TSD has no say", DBT + "inlined.c", " && !(d->c.mode & MODE_TSD)", ""),
    ("a selector of 16 bits clears the rest", DBT + "inlined.c", "if (in->opsize == 2) {\n        e1(e, 0x65);",
     "if (false) {\n        e1(e, 0x65);"),
    ("a stack access may go on in the next page", DBT + "host.c",
     "~(u64)(PAGE_SIZE - 1) | ((1u << k) - 1)", "~(u64)(PAGE_SIZE - 1)"),
    ("a stack store does not ask whether it may write", DBT + "put.c",
     "at + (write ? offsetof(struct stack_page, wtag) : offsetof(struct stack_page, rtag));",
     "at + offsetof(struct stack_page, rtag);"),
    ("the TLB forgets, and the stack's page does not", "vmm/cpu/x86/tlb.c",
     "d->stack[k] = (struct stack_page){STACK_NONE, STACK_NONE, 0};", "(void)d;"),
    ("a link goes past the prologue of a block that keeps other registers", DBT + "cache.c",
     "b->loaded == to->loaded && b->spilled == to->spilled", "true"),
    ("the jump cache's second look takes what it finds", DBT + "stubs.c",
     "e1(e, 0xe3); /* jrcxz over the miss */", "e1(e, 0xeb);"),
    ("the jump cache's second table keeps what it has lost", DBT + "cache.c",
     "(struct jc_second){NO_TARGET, (u64)(uintptr_t)(d->code->rx + d->code->ind_miss)};",
     "d->jc2[t - IDX_COUNT][slot];"),
    ("the jump cache does not know that it has a page", DBT + "cache.c",
     "    note_pages(d->jc_pages[b->lin >> 63], JC_PAGES, b);\n", ""),
    ("a stub takes the stack's new page for readable where it is writable", DBT + "tr.h",
     "e_gs(e, 1, 0x8b, add, index, 1, tlb + tags[k][0]);", "e_gs(e, 1, 0x8b, add, index, 1, tlb + tags[0][0]);"),
    ("a miss of the TLB gives the address to another register", DBT + "translate.c",
     "SLOW_ADD | (u32)c->s2 << SLOW_REG_SHIFT", "SLOW_ADD | (u32)c->s1 << SLOW_REG_SHIFT"),
    ("a miss of the TLB gives an address for what makes one", DBT + "slow.c",
     "d->tmp2 & SLOW_ADD ? host - va : host", "host"),
    ("32-bit code takes all of RSP and RBP for addresses", DBT + "run.c",
     "!((c->cpu.gpr[RSP] | c->cpu.gpr[RBP]) >> 32)", "true"),
    ("what is an address in 32-bit code is relative to RIP", DBT + "put.c",
     "in->rip_rel || (in->code != CODE_64 && in->base < 0 && in->index < 0)", "in->rip_rel"),
    ("segments with limits are translated", DBT + "translate.c",
     "return in->addrsize == 4 && (d->c.mode & mode_open(in->seg));", "return in->addrsize == 4;"),
    ("code of 32 bits is translated whatever its segments are", DBT + "run.c",
     "(c->mode & (MODE_CODE | MODE_FLAT)) == flat", "((c->mode | MODE_FLAT) & (MODE_CODE | MODE_FLAT)) == flat"),
    ("what INC and DEC of 32-bit code are to 64-bit code", DBT + "put_bytes.c",
     "in->code != CODE_64 && (op & 0xf0) == 0x40 && in->map == 0", "false"),
    ("code of another mode is found by its address", "vmm/cpu/x86/tlb.c",
     "if (now != *looked_up || inner || d->was_inner) {", "if (inner || d->was_inner) {"),
    ("a store into its own page makes no flags visible while none of its code is translated", "vmm/cpu/x86/memory.c",
     "own_page(d, tlb_gpa(d, t));", "(void)0;"),
    ("a store to a device makes no flags visible", "vmm/cpu/x86/memory.c",
     "== d->code_page || !ram_ptr(d->ram, gpa, 1);", "== d->code_page; if (!ram_ptr(d->ram, gpa, 1)) return;"),
    ("port output makes no flags visible", "vmm/cpu/x86/sys.c",
     "flags_make_visible(d);\n    d->env->pio_write", "d->env->pio_write"),
    ("a device that writes makes no flags visible", "vmm/cpu/x86/memory.c",
     "if (!d->executing) /* else", "if (false) /* else"),
    ("accessed bits set among the code that runs make no flags visible", "vmm/cpu/x86/walk.c",
     "if (w->table[l] == d->code_page)\n", "if (false)\n"),
    ("a load from a device makes no flags visible", "vmm/cpu/x86/memory.c",
     "if (d->executing)\n        flags_make_visible(d);", "(void)0;"),
    ("port input makes no flags visible", "vmm/cpu/x86/sys.c",
     "flags_make_visible(d); /* devices may write this page */\n    u32 v", "u32 v"),
    ("a REP does not look at what its device wrote", "vmm/cpu/x86/string.c", " || d->st.mmio != asked;", ";"),
    ("translated code sets accessed bits among code", DBT + "slow.c", "WALK_BESIDE", "WALK_ANYWHERE"),
    ("a block does not know what its flags were looked for in", DBT + "translate.c",
     "if (i == t->n - 1 && t->looked > last)", "if (false)"),
    ("flags are not restored where a stop is near or PAUSE is told", DBT + "translate.c",
     ".kind = t->saved ? COLD_EXIT_SAVED : COLD_EXIT", ".kind = COLD_EXIT"),
    ("a part of the budget is lost at an exit", DBT + "run.c",
     "for (unsigned k = 0; k < BUDGET_PARTS; k++)\n        d->c.budget += d->part[k];",
     "for (unsigned k = 0; k + 1 < BUDGET_PARTS; k++)\n        d->c.budget += d->part[k];"),
    ("a table's write drops nothing of an address space that was left", X86 + "tlb.c",
     "        s->translator->forget_left(s, root, lin, len);", "        (void)root;"),
    ("... of another vCPU's", X86 + "tlb.c", "if (has_by_root(s, root, lin)) {", "if (has_by_root(d, root, lin)) {"),
    ("... of a table of two", X86 + "tlb.c", "    if (pg->pt_root != root)\n        pg->pt_root = PT_ROOT_ANY;\n", ""),
    ("... of many writes to its top-level table", X86 + "tlb.c",
     "                s->translator->forget_left(s, pg->pt_root, 0, 0);\n", ""),
    ("... of one at two addresses", DBT + "cache.c", "        spaces_forget(c, PT_ROOT_ANY, 0, 0);\n", ""),
    ("an address space has blocks that were dropped", DBT + "spaces.c",
     "return same && !b->dead && !b->plain ? b : NULL;", "return b;"),
    ("an address space is another one", DBT + "spaces.c", "s->root == root && s->mode", "s->mode"),
    ("an address space is the same in any mode", DBT + "spaces.c", " && s->mode == mode", ""),
    ("an address space has what another had in its place", DBT + "spaces.c",
     "        empty(d, s);\n        s->root", "        s->root"),
    ("... nor what of it is filled", DBT + "spaces.c", "s->filled[s->nfilled++] = (u16)i;", "(void)0;"),
    ("the 2 MiB that a page is in are not noted", DBT + "cache.c", "    note(bits, region_bit(n, lin));\n", ""),
    ("an address space does not know of which pages it has code", DBT + "spaces.c", "    note_pages(s->pages, SPACE_PAGES, b);\n", ""),
    ("... of which second ones", DBT + "cache.c", "        note_page(bits, n, b->lin + b->size - 1);", "        {}"),
    ("an address space does not know an instruction's second page", DBT + "spaces.c",
     " || (b->phys2 && page + PAGE_SIZE - lin < len)", ""),
    ("another mode of ring 3 finds the upper half's code", DBT + "spaces.c", "!below && d->jc_odd ? 0 : 1ull", "1ull"),
    ("a copied block leaves as another one", DBT + "copies.c", "add32(at, EXIT_ID(m->number, 0, 0)); break;", "break;"),
    ("a copied block has another one's addresses", DBT + "copies.c", "case RELOC_LIN: add64(at, m->lin); break;",
     "case RELOC_LIN: break;"),
    ("a copied block is entered for another one", DBT + "copies.c", "add64(at, 0 - m->lin); break;", "break;"),
    ("a copied block goes where another one does", DBT + "copies.c", "u64 old = add64(at, m->lin);", "u64 old = add64(at, 0);"),
    ("... by its place in the jump cache", DBT + "copies.c", "add32(at + 12, 8 * (jc_slot(old + m->lin) - jc_slot(old)));",
     "(void)old;"),
    ("a copied block looks at another one's place in the TLB", DBT + "copies.c",
     "add32(at, tlb_moved(lin - m->lin + (u64)(i64)off, m->lin));", "(void)off;"),
    ("a copied block does not come to a stub", DBT + "copies.c",
     "case RELOC_OUT: add32(at, 0 - (r->cold ? m->cold : m->hot)); break;", "case RELOC_OUT: break;"),
    ("a copied block does not come to what seldom runs", DBT + "copies.c",
     "case RELOC_OTHER: add32(at, r->cold ? m->hot - m->cold : m->cold - m->hot); break;", "case RELOC_OTHER: break;"),
    ("a copied block has another one's links", DBT + "copies.c", "        memcpy(k->rw + l->patch, &rel, 4);\n",
     "        (void)rel;\n"),
    ("... past its prologue", DBT + "copies.c", "            memset(k->rw + l->inner, 0, 4);\n", ""),
    ("a copied block has no instructions of its own", DBT + "copies.c", "    b->insns = k->ninsn_off;\n", ""),
    ("a block of code that was written is copied", DBT + "copies.c", " && !b->dead &&", " &&"),
    ("where an x87 instruction was is copied", DBT + "put.c", "    e_note_lost(&t->e);\n    e_store_imm32", "    e_store_imm32"),
    ("half an address is copied", DBT + "put.c", "    if (in->rip_rel)\n        e_note_lost(e);\n", ""),
    ("an operand's address is copied", DBT + "put.c", "tr_put_lin(t, reg, v);", "e_movi(e, reg, v);"),
    ("a table's write drops no data of an address space that was left", X86 + "tlb.c", "        drop_left(s, root, lin, len);\n", ""),
    ("... nor many writes to its top-level table", X86 + "tlb.c", "                drop_left(s, pg->pt_root, 0, 0);\n", ""),
    ("... nor one to a table at two addresses", X86 + "tlb.c", "    forget_left(d);\n    tlb_flush_list(d, &d->tlb_user);",
     "    tlb_flush_list(d, &d->tlb_user);"),
    ("an address space has another one's data", X86 + "tlb.c", "if (d->left[i].n && d->left[i].root == root)", "if (d->left[i].n)"),
    ("what became code is written when its address space comes back", X86 + "tlb.c",
     "l->entry[l->n].writable &&\n                    !(d->shared->pages[index].flags & (PG_CODE | PG_PT | PG_CLEAN));",
     "l->entry[l->n].writable;"),
    ("what comes back can be written", X86 + "tlb.c", "l->entry[l->n++].writable = t->wtag == t->rtag;",
     "l->entry[l->n++].writable = true;"),
    ("nobody knows who may write what came back", X86 + "tlb.c",
     "        if (fast)\n            note_writer(d, index, slot);\n    }\n}", "    }\n}"),
    ("what came back is on no list", X86 + "tlb.c", "        filled_add(d, &d->tlb_user, slot);\n        if", "        if"),
    ("another top-level table keeps the jump cache", X86 + "tlb.c",
     "    d->translator->leave(d, true);\n", ""),
    ("SYSCALL leaves flags that SFMASK does not clear", "vmm/cpu/x86/tlb.c", "(c->sfmask & masked) == masked &&", ""),
    ("SYSCALL does not look whether it is enabled", "vmm/cpu/x86/tlb.c", "(c->efer & EFER_SCE) &&", ""),
    ("SYSCALL is not told of another SFMASK", "vmm/cpu/x86/msr.c", "if (p == &c->sfmask)\n            mmu_crossing_changed(d);", ""),
    ("PUSHF and SYSCALL save no DF", DBT + "inlined.c", "~(u32)(FL_ARITH | FL_RF | FL_VM)", "~(u32)(FL_ARITH | FL_RF | FL_VM | FL_DF)"),
    ("SYSRET looks at no TF", DBT + "put_crossing.c", "R11, FL_TF | FL_AC);", "R11, 0);"),
    ("REP goes forwards, whatever DF says", DBT + "put_string.c", "FL_DF >> 8", "0"),
    ("REP runs beyond the budget", DBT + "put_string.c", "put_leave_if(t, &out, 0xc); ", ""),
    ("REP takes one position", DBT + "put_string.c", "e_gs(e, 1, 0x29, s2, NOREG, 1, tr_part(t)); ", ""),
    ("REP writes where it may read", DBT + "put_string.c", "put_end(t, &out, RDI, (unsigned)size, true);",
     "put_end(t, &out, RDI, (unsigned)size, false);"),
    ("REP goes on behind the page", DBT + "put_string.c", "e_cmp_imm32(e, t->s1, PAGE_SIZE);", "e_cmp_imm32(e, t->s1, 2 * PAGE_SIZE);"),
    ("a REP of nothing does what it can", DBT + "put_string.c", "put_leave_if(t, &out, 7);  ", ""),
    ("SYSRET takes no interrupt that waited", DBT + "put_crossing.c", "OFF(c.want)); /* IF", "OFF(c.alone)); /* IF"),
)
# Those of the KVM engine, of which programs in the imitation have to tell.
KVM = (
    ("KVM asks ports with flags that are dead", "vmm/cpu/kvm/step.c",
     "if (p->port)\n        flags_make_visible(d);", ""),
    ("KVM loads from devices with flags that are dead", "vmm/cpu/kvm/step.c",
     "if (!ram && op->acc != ACC_W)\n            flags_make_visible(d);", ""),
    ("KVM walks through a guard of its step", "vmm/cpu/kvm/step.c",
     "(page_at(d, d->code_page)->flags & PG_PT) ||", ""),
)


# ... of what counts for the guest's performance counters.
COUNTER_MUTATIONS = (
    ("REP's iterations are instructions", DBT + "put_string.c", "e_gs(e, 1, 0x01, s2, NOREG, 1, OFF(c.pmu.not_insns));", ""),
    ("a run goes beyond an overflow that interrupts", X86 + "run.c",
     "MIN(end - position(d), pmu_distance(d))", "(end - position(d))"),
    ("a run does not come back where the ring changes", X86 + "pmu.c", "p->again = p->again || p->by_ring;", ""),
    ("what was counted while no counter was on is taken later", DBT + "run.c",
     "UNLIKELY(d->c.pmu.signals[0] | d->c.pmu.signals[1])", "d->c.pmu.on"),
    ("a branch to nowhere stays counted", DBT + "run.c", "d->c.pmu.counted[__builtin_ctz(s)]--;", "(void)s;"),
    ("a Jcc that jumps is not counted as such", DBT + "put.c", "put_signals(t, on_jump);", ""),
    ("a path's branches are not counted where it is left", DBT + "path.c",
     "put_give_back(t, i + 1);\n    put_passed(t, i + 1);", "put_give_back(t, i + 1);"),
    ("a loop's branches are not counted", DBT + "path.c", "put_passed(t, i + 1);\n        e_fix", "e_fix"),
    ("... of one that begins at a branch", DBT + "translate.c",
     "put_passed(&t, t.n);\n        if (last", "(void)0;\n        if (last"),
    ("branches in front of an exit to C are not counted", DBT + "run.c", "        count_passed(d, b, i);", "        (void)0;"),
    ("... of a guard that failed in the middle", DBT + "guard.c", "put_passed(t, i);", ""),
    ("an interrupt's delivery is not looked at", X86 + "except.c", "pmu_sync(d); /* no run", "(void)0; /* no run"),
    ("a trap's delivery is taken for a cycle", X86 + "except.c",
     "if (f.trap)\n        pmu_sync(d); /* its", "if (false)\n        pmu_sync(d); /* its"),
    ("iterations of REP are instructions", X86 + "string.c", "d->pmu.not_insns += done;", ""),
    ("an edge is remembered while nobody looks", X86 + "pmu.c", "forget_edges(d);\n    if (before", "if (before"),
    ("a LOOP to what follows it does not jump", X86 + "pmu.c", ": loop_jumps(d, in, d->cpu.gpr[RCX]);", ": d->next != d->cpu.rip + in->len;"),
    ("BTF is not for REP", X86 + "step.c", "tf = r == DONE && pmu_branched(d, in);",
     "tf = r != DONE || pmu_branched(d, in);"),
    ("branches of all rings are recorded", X86 + "lbr.c", "return d->pmu.lbr_rings >> (d->cpl != 0) & 1;", "return d->pmu.lbr_rings;"),
    ("a call's record stays when it has returned", X86 + "lbr.c", "c->lbr_from[at] = c->lbr_to[at] = c->lbr_info[at] = 0;", ""),
    ("a call to what follows it waits for a return", X86 + "lbr.c", "return; /* it is for its return address", "(void)0; /* it is"),
    ("records go on when a counter has overflowed", X86 + "pmu.c", "(frozen & DEBUGCTL_FREEZE_LBR ? STATUS_LBR_FROZEN : 0)", "0"),
    ("translated code runs while branches are recorded", X86 + "tlb.c", "(d->pmu.lbr_rings >> (d->cpl != 0) & 1);", "false;"),
    ("#DB leaves the records on", X86 + "pmu.c", "~(u64)(DEBUGCTL_BTF | DEBUGCTL_LBR)", "~(u64)DEBUGCTL_BTF"),
    ("an interrupt is no record", X86 + "except.c", "if (UNLIKELY(d->pmu.lbr))\n            lbr_delivery(d, from);\n        pmu_delivered", "pmu_delivered"),
)
ALL = MUTATIONS + KVM + COUNTER_MUTATIONS


@test("source/mutations")
def there(t):
    """What insn/mutations takes out, when it is run, is still there."""
    gone = [f"{what}: {name}" for what, name, old, _ in ALL if (ROOT / name).read_text().count(old) != 1]
    t.equal(gone, [], "mutations of what is not there once")
    return f"{len(ALL)} mutations"


def build(t, tree):
    t.run("make", "-s", f"-j{os.cpu_count()}", "build/rel/tests/insn/insn",
          "build/rel/tests/imitation/insn", "build/rel/reprise", cwd=tree, env={"MAKEFLAGS": ""}, timeout=900)


def fails(t, *argv, env=None):
    """It fails, or does not end."""
    try:
        return t.run(*argv, env=env, code=None, timeout=200).code != 0
    except Failure:
        return True


def noticed(t, tree, programs):
    """Do guests fail that have what is rare in programs, or a campaign? 0: neither."""
    built = tree / "build" / "rel"
    for guest, *options in (("across",), ("meets",), ("compat",), ("named",), ("syscalls",), ("spaces",),
                            ("startup", "--cpus", 2, "--append", "pages")):
        if fails(t, built / "reprise", "record", "--force", "-o", t.dir / "rec", "--memory", "16M", "--kernel",
                 IMAGES / "tiny" / (guest + ".elf"), *options, env={"REPRISE_TEST_COPIES": "1"}):
            return -1
    for seed in range(1, 1 + programs // 500):
        for code in (64, 32):
            if fails(t, built / "tests" / "insn" / "insn", "--stops", "--code", code, "--cases", "500",
                     "--seed", seed, env={"REPRISE_TEST_HOT": 1} if seed % 2 else None):
                return seed
    return 0


def noticed_of_kvm(t, tree, programs):
    """Does a campaign under the imitation of KVM fail? 0: none."""
    for seed in range(1, 1 + programs // 100):
        if fails(t, tree / "build" / "rel" / "tests" / "imitation" / "insn", "--engine", "kvm", "--stops",
                 "--interrupts", "--cases", "100", "--seed", seed):
            return seed
    return 0


def noticed_by_counters(t, tree, programs):
    for seed in range(1, 1 + programs // 500):
        for model in ("zen2", "skylake"):
            if fails(t, tree / "build/rel/tests/insn/insn", "--counters", "--model", model, "--cases", "500",
                     "--seed", seed, env={"REPRISE_TEST_HOT": 1} if seed % 2 else None):
                return seed
    return 0


def take_out(t, *campaigns):
    """Of each campaign (rows, what says which seed noticed it, programs): none is missed, and none fails without."""
    tree = t.dir / "tree"
    shutil.copytree(ROOT, tree, ignore=shutil.ignore_patterns("build", ".git"), symlinks=True)
    missed = []
    for rows, noticed_by, programs in campaigns:
        build(t, tree)
        t.equal(noticed_by(t, tree, 500), 0, "the campaign of the program as it is")
        for what, name, old, new in rows:
            path = tree / name
            text = path.read_text()
            t.equal(text.count(old), 1, f"places of {old!r} in {name}")
            path.write_text(text.replace(old, new))
            build(t, tree)
            seed = noticed_by(t, tree, programs)
            t.log.write(f"{what}: seed {seed}\n")
            if not seed:
                missed.append(what)
            path.write_text(text)
    t.equal(missed, [], "mutations that no program noticed")
    return f"{sum(len(rows) for rows, _, _ in campaigns)} mutations"


@test("insn/mutations", cost=600)
def mutations(t):
    """The guests `across` or `meets`, or campaigns of random programs, fail for each, and pass without."""
    return take_out(t, (MUTATIONS, noticed, 4000), (KVM, noticed_of_kvm, 4000))


@test("insn/counter-mutations", cost=300)
def counter_mutations(t):
    """The same of `insn --counters`."""
    t.need_v3()
    return take_out(t, (COUNTER_MUTATIONS, noticed_by_counters, 2000))
