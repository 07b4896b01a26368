/* The numbering of pages in checkpoint files: see checkpoint.h. */
#include "board/ram.h"
#include "replay/checkpoint.h"

void page_space_init(struct page_space *p, const struct machine *m)
{
    *p = (struct page_space){.ram = machine_ram(m)->size / PAGE_SIZE, .nimages = machine_images(m)};
    p->total = p->ram;
    for (unsigned i = 0; i < p->nimages; i++) {
        machine_image(m, i, &p->image[i]);
        p->total += p->image[i];
    }
}

int page_space_find(const struct page_space *p, u64 *index)
{
    if (*index < p->ram)
        return -1;
    *index -= p->ram;
    int i = 0;
    while (*index >= p->image[i])
        *index -= p->image[i++];
    return i;
}
