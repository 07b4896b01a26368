/*
 * target.xml: the registers of regs.c by gdb's features (gdb manual, G.5 "i386 Features"), and two
 * of our own. The operating system is none, or gdb would look for processes and shared libraries;
 * of a process it is Linux, and then gdb wants orig_rax.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "replay/gdb/regs.h"

struct flag {
    const char *name; /* NULL ends a list */
    u8 first, last;
};

/* clang-format off */
static const struct flag eflags[] = {
    {"CF", 0, 0}, {"", 1, 1}, {"PF", 2, 2}, {"AF", 4, 4}, {"ZF", 6, 6}, {"SF", 7, 7}, {"TF", 8, 8},
    {"IF", 9, 9}, {"DF", 10, 10}, {"OF", 11, 11}, {"IOPL", 12, 13}, {"NT", 14, 14}, {"RF", 16, 16},
    {"VM", 17, 17}, {"AC", 18, 18}, {"VIF", 19, 19}, {"VIP", 20, 20}, {"ID", 21, 21}, {0}};
static const struct flag mxcsr[] = {
    {"IE", 0, 0}, {"DE", 1, 1}, {"ZE", 2, 2}, {"OE", 3, 3}, {"UE", 4, 4}, {"PE", 5, 5},
    {"DAZ", 6, 6}, {"IM", 7, 7}, {"DM", 8, 8}, {"ZM", 9, 9}, {"OM", 10, 10}, {"UM", 11, 11},
    {"PM", 12, 12}, {"RC", 13, 14}, {"FZ", 15, 15}, {0}};
static const struct flag cr0[] = {
    {"PE", 0, 0}, {"MP", 1, 1}, {"EM", 2, 2}, {"TS", 3, 3}, {"ET", 4, 4}, {"NE", 5, 5},
    {"WP", 16, 16}, {"AM", 18, 18}, {"NW", 29, 29}, {"CD", 30, 30}, {"PG", 31, 31}, {0}};
static const struct flag cr4[] = {
    {"VME", 0, 0}, {"PVI", 1, 1}, {"TSD", 2, 2}, {"DE", 3, 3}, {"PSE", 4, 4}, {"PAE", 5, 5},
    {"MCE", 6, 6}, {"PGE", 7, 7}, {"PCE", 8, 8}, {"OSFXSR", 9, 9}, {"OSXMMEXCPT", 10, 10},
    {"UMIP", 11, 11}, {"LA57", 12, 12}, {"VMXE", 13, 13}, {"SMXE", 14, 14}, {"FSGSBASE", 16, 16},
    {"PCIDE", 17, 17}, {"OSXSAVE", 18, 18}, {"SMEP", 20, 20}, {"SMAP", 21, 21}, {"PKE", 22, 22},
    {"CET", 23, 23}, {0}};
static const struct flag efer[] = {
    {"SCE", 0, 0}, {"LME", 8, 8}, {"LMA", 10, 10}, {"NXE", 11, 11}, {0}};
static const struct flag xcr0[] = {{"X87", 0, 0}, {"SSE", 1, 1}, {"AVX", 2, 2},
                                   {"OPMASK", 5, 5}, {"ZMM_HI256", 6, 6}, {"HI16_ZMM", 7, 7}, {0}};
/* clang-format on */

static void flags(FILE *f, const char *id, unsigned size, const struct flag *list)
{
    fprintf(f, "<flags id=\"%s\" size=\"%u\">", id, size);
    for (; list->name; list++)
        fprintf(f, "<field name=\"%s\" start=\"%u\" end=\"%u\"/>", list->name, list->first,
                list->last);
    fputs("</flags>", f);
}

/* How `p $xmm0` shows a vector register; the names of the members are gdb's custom. */
static const char vec128[] =
    "<vector id=\"v4f\" type=\"ieee_single\" count=\"4\"/>"
    "<vector id=\"v2d\" type=\"ieee_double\" count=\"2\"/>"
    "<vector id=\"v16i8\" type=\"int8\" count=\"16\"/>"
    "<vector id=\"v8i16\" type=\"int16\" count=\"8\"/>"
    "<vector id=\"v4i32\" type=\"int32\" count=\"4\"/>"
    "<vector id=\"v2i64\" type=\"int64\" count=\"2\"/>"
    "<union id=\"vec128\">"
    "<field name=\"v4_float\" type=\"v4f\"/><field name=\"v2_double\" type=\"v2d\"/>"
    "<field name=\"v16_int8\" type=\"v16i8\"/><field name=\"v8_int16\" type=\"v8i16\"/>"
    "<field name=\"v4_int32\" type=\"v4i32\"/><field name=\"v2_int64\" type=\"v2i64\"/>"
    "<field name=\"uint128\" type=\"uint128\"/></union>";

static void types(FILE *f, enum reg_feature feature)
{
    switch (feature) {
    case FEATURE_CORE: flags(f, "i386_eflags", 4, eflags); break;
    case FEATURE_SSE:
        fputs(vec128, f);
        flags(f, "i386_mxcsr", 4, mxcsr);
        break;
    case FEATURE_AVX512:
        fputs(vec128, f);
        fputs("<vector id=\"v2ui128\" type=\"uint128\" count=\"2\"/>", f);
        break;
    case FEATURE_PROCESS: fputs("<vector id=\"comm\" type=\"int8\" count=\"16\"/>", f); break;
    case FEATURE_SYSTEM:
        flags(f, "x86_cr0", 8, cr0);
        flags(f, "x86_cr4", 8, cr4);
        flags(f, "x86_efer", 8, efer);
        flags(f, "x86_xcr0", 8, xcr0);
        break;
    default: break;
    }
}

char *gdb_description(unsigned view)
{
    static const char *const names[] = {[FEATURE_CORE] = "org.gnu.gdb.i386.core",
                                        [FEATURE_SSE] = "org.gnu.gdb.i386.sse",
                                        [FEATURE_AVX] = "org.gnu.gdb.i386.avx",
                                        [FEATURE_AVX512] = "org.gnu.gdb.i386.avx512",
                                        [FEATURE_SEGMENTS] = "org.gnu.gdb.i386.segments",
                                        [FEATURE_SYSTEM] = "org.reprise.x86.system",
                                        [FEATURE_PROCESS] = "org.reprise.process",
                                        [FEATURE_BASES] = "org.reprise.x86.bases",
                                        [FEATURE_LINUX] = "org.gnu.gdb.i386.linux"};
    char *text = NULL;
    size_t size;
    FILE *f = open_memstream(&text, &size);
    if (!f)
        return NULL;
    fprintf(
        f,
        "<?xml version=\"1.0\"?><!DOCTYPE target SYSTEM \"gdb-target.dtd\"><target version=\"1.0\">"
        "<architecture>%s</architecture><osabi>%s</osabi>",
        view & GDB_VIEW_16   ? "i8086"
        : view & GDB_VIEW_32 ? "i386"
                             : "i386:x86-64",
        view & GDB_VIEW_PROCESS ? "GNU/Linux" : "none");
    int now = -1;
    for (unsigned n = 0; n < GDB_REGISTERS; n++) {
        const struct gdb_reg *r = gdb_reg_find(n, view);
        if (!r)
            continue;
        if (r->feature != now) {
            fprintf(f, "%s<feature name=\"%s\">", now < 0 ? "" : "</feature>", names[r->feature]);
            now = r->feature;
            types(f, r->feature);
        }
        /* An address of an i386 has 32 bits. */
        bool wide = (view & GDB_VIEW_32) && r->bits == 64;
        fprintf(f, "<reg name=\"%s\" bitsize=\"%u\" type=\"%s\" regnum=\"%u\"", r->name, r->bits,
                wide && !strcmp(r->type, "data_ptr") ? "int64" : r->type, n);
        if (r->group)
            fprintf(f, " group=\"%s\"", r->group);
        fputs(r->feature == FEATURE_PROCESS ? " save-restore=\"no\"/>" : "/>", f);
    }
    fputs("</feature></target>", f);
    bool failed = ferror(f);
    if (fclose(f) || failed) {
        free(text);
        return NULL;
    }
    return text;
}
