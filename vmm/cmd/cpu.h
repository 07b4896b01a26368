/* What CPUs there are to choose from, for people. */
#ifndef REPRISE_CMD_CPU_H
#define REPRISE_CMD_CPU_H

/* `reprise cpu list`, and `record --cpu help`: models and features, and what of them runs here. */
void cpu_list_print(void);

#endif
