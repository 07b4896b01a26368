# Reprise. `make demo`, `make test`; see README.md.
MODE ?= rel
B    := build/$(MODE)
CC   ?= gcc

CFLAGS_common := -std=gnu11 -Wall -Wextra -Werror -Wno-unused-parameter -Wmissing-prototypes \
	-Wstrict-prototypes -Wshadow -Wvla -Ivmm -I. -I$(B)/gen -isystem /usr/include/slirp -g -fno-strict-aliasing -Ivmm/cpu/dbt -MMD -MP
CFLAGS_rel   := -O2
CFLAGS_dev   := -O1
CFLAGS_asan  := -O1 -fsanitize=address -fno-omit-frame-pointer
CFLAGS_ubsan := -O1 -fsanitize=undefined -fno-sanitize-recover=all -fno-sanitize=alignment
CFLAGS_cov   := -O0 --coverage
CFLAGS       := $(CFLAGS_common) $(CFLAGS_$(MODE)) $(EXTRA_CFLAGS)
LDFLAGS      := $(CFLAGS_$(MODE))
LDLIBS       := -lslirp -lpng16 -lnbd -lZydis -lZycore -llz4 -lxxhash -lfdt -lz -llzma -lzstd -lpthread

# Code that runs between two pieces of translated code must not touch vector registers: they hold
# the guest's (vmm/cpu/dbt/README.md).
GPRONLY := -mgeneral-regs-only -mno-red-zone -minline-all-stringops -mstringop-strategy=rep_8byte \
	-fno-tree-loop-distribute-patterns -fno-sanitize=all -fno-stack-protector -fno-profile-arcs \
	-fno-test-coverage
GPR_SRC := access cache debug except exec flags fpu icache mmu msr run seg string sys vector
$(foreach f,$(GPR_SRC),$(eval CFLAGS_vmm/cpu/dbt/$f := $(GPRONLY) -O2))

LIB_SRC := $(wildcard vmm/base/*.c vmm/board/*.c vmm/cpu/*.c vmm/cpu/dbt/*.c vmm/cpu/kvm/*.c vmm/dev/*.c vmm/dev/virtio/*.c vmm/host/*.c \
	vmm/*.c replay/*.c replay/gdb/*.c virtio-gpu-log/*.c virtio-gpu-log/play/*.c)
LIB_SRC := $(filter-out vmm/main.c,$(LIB_SRC))
CMD_SRC := vmm/main.c $(wildcard vmm/cmd/*.c)
LIB_OBJ := $(LIB_SRC:%.c=$(B)/%.o)
CMD_OBJ := $(CMD_SRC:%.c=$(B)/%.o)

.DEFAULT_GOAL := all
all: build/reprise

build/reprise: $(B)/reprise
	@mkdir -p $(@D)
	@cp -f $< $@.tmp && mv -f $@.tmp $@

$(B)/reprise: $(CMD_OBJ) $(B)/libreprise.a
	@echo "  LD $@"
	@$(CC) $(LDFLAGS) -o $@ $^ $(LDLIBS)

$(B)/libreprise.a: $(LIB_OBJ)
	@rm -f $@
	@ar rcs $@ $^

$(B)/%.o: %.c
	@mkdir -p $(@D)
	@echo "  CC $<"
	@$(CC) $(CFLAGS) $(CFLAGS_$*) -c -o $@ $<

# Loops over pixels: vector code makes them five times as fast.
CFLAGS_virtio-gpu-log/picture := $(if $(filter rel,$(MODE)),-O3)
CFLAGS_virtio-gpu-log/play/play_look := $(CFLAGS_virtio-gpu-log/picture)

-include mk/*.mk

clean:
	rm -rf build

-include $(LIB_OBJ:.o=.d) $(CMD_OBJ:.o=.d)
.PHONY: all clean
