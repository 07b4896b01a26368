/* gpu_log_sample FILE FRAMES [cut]: writes a small gpu.log (tests/unit/gpu_stream.h); with `cut`
 * without an end. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../unit/gpu_stream.h"

int main(int argc, char **argv)
{
    struct err err;
    if (argc < 3) {
        fprintf(stderr, "usage: gpu_log_sample FILE FRAMES [cut]\n");
        return 2;
    }
    int fd = open(argv[1], O_RDWR | O_CREAT | O_TRUNC, 0666);
    if (fd < 0) {
        perror(argv[1]);
        return 1;
    }
    if (sample_gpu_log(fd, (unsigned)atoi(argv[2]), argc < 4, NULL, &err)) {
        fprintf(stderr, "gpu_log_sample: %s\n", err.text);
        return 1;
    }
    return 0;
}
