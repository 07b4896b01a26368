/* The numbering of pages in checkpoint files: see checkpoint.h. */
#include "board/ram.h"
#include "host/disk.h"
#include "replay/checkpoint.h"

void page_space_init(struct page_space *p, const struct machine *m)
{
    *p = (struct page_space){.ram = machine_ram(m)->size / PAGE_SIZE, .ndisks = machine_disks(m)};
    p->total = p->ram;
    for (unsigned i = 0; i < p->ndisks; i++) {
        p->disk[i] = (machine_disk(m, i)->size + PAGE_SIZE - 1) / PAGE_SIZE;
        p->total += p->disk[i];
    }
}

int page_space_find(const struct page_space *p, u64 *index)
{
    if (*index < p->ram)
        return -1;
    *index -= p->ram;
    int i = 0;
    while (*index >= p->disk[i])
        *index -= p->disk[i++];
    return i;
}
