/* What a machine's screen shows, as a file: see travel.h. */
#include <errno.h>

#include "cmd/travel.h"
#include "host/picture.h"

static void screen_row(void *opaque, u32 y, u8 *rgb)
{
    machine_screen_row(opaque, y, rgb);
}

int write_screenshot(struct machine *m, const char *path, bool force, struct err *err)
{
    struct elf_output out;
    struct dev_screen screen;
    if (!machine_screen(m, &screen))
        return err_set(err, -ENOTSUP, "this was recorded without a display (record --gpu)");
    if (!screen.width)
        return err_set(err, -ENODATA, "the screen is off here: the guest shows nothing");
    int code = elf_output_open(&out, path, force, err);
    if (!code)
        code = picture_write(out.file, screen.width, screen.height, screen_row, m, err);
    if (!code)
        code = elf_output_commit(&out, err);
    elf_output_discard(&out);
    return code;
}
