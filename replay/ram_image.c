/* See ram_image.h. */
#include "replay/ram_image.h"

#include <errno.h>

#include "board/ram.h"

int ram_image_take(struct page_image **out, struct page_store *store, struct machine *m,
                   struct err *err)
{
    const struct ram *ram = machine_ram(m);
    if (machine_written_reset(m))
        return err_set(err, -ENOMEM, "no memory to track the guest's pages");
    *out = page_image_create(store, ram->size / PAGE_SIZE);
    if (!*out)
        return err_set(err, -ENOMEM, "no memory for checkpoints");
    for (u64 region = 0; region < ram->size; region += RAM_REGION) {
        if (ram_untouched(ram, region, RAM_REGION))
            continue;
        for (u64 at = region; at < region + RAM_REGION; at += PAGE_SIZE)
            if (page_image_set(*out, at / PAGE_SIZE, ram->host + at))
                return err_set(err, -ENOMEM, "no memory for checkpoints");
    }
    return 0;
}

int ram_image_update(struct page_image **image, struct machine *m, struct err *err)
{
    size_t n;
    const u32 *written = machine_written(m, &n);
    struct page_image *now = page_image_copy(*image);
    bool failed = !now;
    for (size_t i = 0; !failed && i < n; i++)
        failed = page_image_set(now, written[i],
                                machine_ram(m)->host + (u64)written[i] * PAGE_SIZE) != 0;
    if (failed) {
        page_image_destroy(now);
        return err_set(err, -ENOMEM, "no memory for a checkpoint");
    }
    page_image_destroy(*image);
    *image = now;
    machine_written_reset(m);
    return 0;
}
