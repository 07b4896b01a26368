/*
 * A table of symbols (addresses, names, types as nm prints them) and its form as an ELF file that
 * gdb, addr2line and crash read. guest_linux.h fills one from a recorded guest's memory.
 */
#ifndef REPRISE_SYMBOLS_H
#define REPRISE_SYMBOLS_H

#include <stdio.h>

#include "base/err.h"
#include "base/types.h"

#define SYMBOLS_MAX       (2u << 20)   /* a table with more is refused */
#define SYMBOL_NAME_MAX   512u         /* bytes with the NUL; KSYM_NAME_LEN of Linux 6.1 */
#define SYMBOLS_NAMES_MAX (192u << 20) /* bytes of all names */

/* No kernel is below, of 64 and of 32 bits. */
#define SYMBOLS_FLOOR    0xffff800000000000ull
#define SYMBOLS_FLOOR_32 0x40000000u

struct symbol {
    u64 address;
    u64 size;    /* bytes, up to the next symbol if nobody said it; 0: unknown */
    u32 name;    /* offset in names */
    u32 order;   /* of addition: the first of several at one address is the one that is shown */
    char type;   /* nm's letter: T t W w D d B b R r A a ... */
    u8 absolute; /* not an address: offsets of per-CPU variables, constants */
};

/* Addresses that become a section of the ELF file: a kernel's part, a module. */
struct symbol_range {
    char name[64];
    u64 start, end;
    bool code;
};

/* How the kernel's unwind tables are to be read: orc.c. */
enum orc_form { ORC_FORM_NONE, ORC_FORM_END, ORC_FORM_SIGNAL, ORC_FORM_TYPES };

/* Owned by whoever called symbols_init (or guest_symbols_read); symbols_free is safe on zeros. */
struct symbols {
    struct symbol *list; /* after symbols_finish: ascending by address, then order */
    u32 *by_name;        /* indices in list, ascending by name, global before local ones */
    u32 count, room;
    u32 absolutes; /* how many of the list, its first ones, are absolute */
    char *names;   /* all names, each with its NUL */
    u32 names_size, names_room;
    struct symbol_range *ranges;
    u32 nranges;
    struct orc_row *orc;  /* how to unwind the stack, ascending by address: orc.h */
    u32 norc, orc_budget; /* rows; how many more a guest may make us look at */
    enum orc_form orc_form;
    bool narrow;       /* of a kernel of 32 bits */
    u64 floor;         /* where the kernel's addresses begin */
    char release[128]; /* "6.1.0-56-amd64"; "" if unknown */
    u8 build_id[32];   /* of the guest's kernel */
    u8 build_id_size;  /* 0 if unknown */
};

void symbols_init(struct symbols *s);
void symbols_free(struct symbols *s);

/* Adds one; the name is copied. Size 0: up to the next. -E2BIG with a text past the limits above,
 * -ENOMEM. */
int symbols_add(struct symbols *s, u64 address, u64 size, char type, bool absolute,
                const char *name, struct err *err);
/* Adds a range; one that is empty, not the kernel's, or meets an earlier one is left out. */
int symbols_add_range(struct symbols *s, const char *name, u64 start, u64 end, bool code,
                      struct err *err);
/* After the last symbols_add, before anything below: sorts, and gives each symbol its size. */
int symbols_finish(struct symbols *s, struct err *err);

/* The symbol that `address` lies in: its name (valid until symbols_free) and, unless `offset` is
 * NULL, the distance from its start. NULL if there is none. Absolute symbols are not found. */
const char *symbols_find(const struct symbols *s, u64 address, u64 *offset);
/* "do_idle+0x1c", "do_idle" at its start, or "0xffff..." without a symbol; returns `out`. */
char *symbols_format(const struct symbols *s, u64 address, char *out, size_t size);
/* A symbol's address; of several with that name a global one. false if there is none. */
bool symbols_address(const struct symbols *s, const char *name, u64 *address);

/* Is it an address of the kernel's? */
bool symbols_in_kernel(const struct symbols *s, u64 address);

/* Writes an ELF file without code, of x86-64 or i386 as the kernel is: .symtab, .strtab, empty
 * sections where the kernel's lie, its build ID, .debug_frame where there are unwind tables. `f` is
 * left unflushed; -errno with a text. */
int symbols_write_elf(const struct symbols *s, FILE *f, struct err *err);

#endif
