/* log_version FILE N: makes a log one of format version N, its checksum right: for the tests. */
#include <stdio.h>
#include <stdlib.h>

#include "replay/log_format.h"

int main(int argc, char **argv)
{
    struct chunk_file_header h;
    FILE *f = argc == 3 ? fopen(argv[1], "r+") : NULL;
    if (!f || fread(&h, sizeof(h), 1, f) != 1)
        return 1;
    h.version = (u32)atoi(argv[2]);
    h.check = chunk_file_check(&h);
    rewind(f);
    return fwrite(&h, sizeof(h), 1, f) != 1 || fclose(f);
}
