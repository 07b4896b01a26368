# Reprise. `make demo`, `make test`; see README.md.
MODE ?= rel
B    := build/$(MODE)
# MODE=clang: as rel, by clang, apart from what gcc made. `make CC=...`: any of either kind.
ifeq ($(origin CC),default)
CC := $(if $(filter clang,$(MODE)),clang,gcc)
endif
CLANG := $(findstring clang,$(shell $(CC) --version 2>/dev/null))
# Warnings are errors where somebody mends them: in CI and in MODE=dev. Other compilers and libraries
# than ours warn of other things. `make WERROR=1`, `WERROR=0`.
WERROR ?= $(if $(filter true 1,$(CI))$(filter dev,$(MODE)),1,0)
export WERROR
WARNINGS := -Wall -Wextra -Wno-unused-parameter $(if $(filter 1,$(WERROR)),-Werror)
# libseccomp's macros leave fields out; KVM's structs end in arrays, and others begin with them.
WARNINGS += $(if $(CLANG),-Wno-missing-field-initializers -Wno-gnu-variable-sized-type-not-at-end)
# In the programs, most of whose files read bytes of guests, files or peers, nothing is cut off by
# accident. clang has another idea of what is an accident.
CONVERSION := $(if $(CLANG),,-Wconversion)

CFLAGS_common := -std=gnu11 $(WARNINGS) -Wmissing-prototypes \
	-Wstrict-prototypes -Wshadow -Wvla -Ivmm -I. -I$(B)/gen -g -fno-strict-aliasing -MMD -MP
CFLAGS_rel   := -O2
CFLAGS_clang := -O2
CFLAGS_dev   := -O1
CFLAGS_asan  := -O1 -fsanitize=address -fno-omit-frame-pointer
CFLAGS_ubsan := -O1 -fsanitize=undefined -fno-sanitize-recover=all -fno-sanitize=alignment
CFLAGS_cov   := -O0 --coverage
# In every build, whatever the distribution's compiler does by itself; tests/suite/hardening.py reads it
# out of the binaries. FORTIFY needs an optimiser, and the sanitizers have checks of their own.
# No CET: Linux enforces only its shadow stack, and returns do not match calls where translated code is
# entered and left (vmm/cpu/dbt/stubs.c); a mark that we keep it would be wrong.
HARDEN    := -fstack-protector-strong -fPIE -fcf-protection=none
HARDEN_LD := -pie -Wl,-z,relro -Wl,-z,now -Wl,-z,noexecstack
FORTIFY   := $(if $(filter rel clang dev,$(MODE)),-U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=3)
# The sanitizers start processes and coverage writes files: they lock nothing in (vmm/host/sandbox.h).
# MODE=dev prints the system call that it is ended for, and leaves core files.
SANDBOX_dev := -DREPRISE_SANDBOX_TRAP
SANDBOX_cov := -DREPRISE_NO_SANDBOX
CFLAGS       := $(CFLAGS_common) $(HARDEN) $(FORTIFY) $(SANDBOX_$(MODE)) $(CFLAGS_$(MODE)) $(EXTRA_CFLAGS)
LDFLAGS      := $(CFLAGS_$(MODE)) $(HARDEN_LD)
LDLIBS       := -lpng16 -lnbd -lZydis -lZycore -llz4 -lxxhash -lcrypto -lseccomp -lfdt -lz -llzma -lzstd -lmpfr -lgmp -lpthread

# Code that runs between two pieces of translated code must not touch vector registers: they hold
# the guest's (vmm/cpu/dbt/README.md). So libc's memcpy and memset are not for it: gcc puts them in
# line; of clang's calls the names are changed to those in own_mem.S.
GPRONLY := -mgeneral-regs-only -mno-red-zone -fno-sanitize=all -fno-stack-protector -fno-profile-arcs \
	-fno-test-coverage -U_FORTIFY_SOURCE -O2 $(if $(CLANG),,-minline-all-stringops \
	-mstringop-strategy=rep_8byte -fno-tree-loop-distribute-patterns)
GPR_SRC := accesses x86/approx x86/avx512 x86/canon x86/debug x86/except x86/exec x86/far x86/flags x86/fpu x86/gate x86/heads x86/icache x86/lbr x86/legacy x86/memory x86/msr x86/msr_named x86/park x86/pmu x86/real x86/run x86/seg x86/step x86/string x86/sys x86/task x86/tlb x86/trace x86/vector x86/walk x86/x87_own dbt/cache dbt/paranoid_tape dbt/regions dbt/run dbt/slow dbt/spaces
define gpr_only
CFLAGS_$(1) := $$(GPRONLY)
OWN_MEM_$(1) := $$(CLANG)
endef
$(foreach f,$(GPR_SRC),$(eval $(call gpr_only,vmm/cpu/$f)))
RENAME_MEM := objcopy $(foreach f,memcpy memset,--redefine-sym $f=own_$f)

LIB_SRC := $(wildcard vmm/base/*.c vmm/board/*.c vmm/boot/*.c vmm/cpu/*.c vmm/cpu/dbt/*.c vmm/cpu/x86/*.c vmm/cpu/kvm/*.c vmm/dev/*.c vmm/dev/virtio/*.c vmm/host/*.c vmm/live/*.c \
	vmm/machine/*.c inspect/*.c replay/*.c replay/gdb/*.c virtio-gpu-log/*.c virtio-gpu-log/play/*.c)
# What the guest's agent and `reprise` have in common.
AGENT_SRC := guest-agent/agent/copy_sink.c guest-agent/agent/copy_source.c guest-agent/agent/sync.c
CMD_SRC := vmm/main.c $(wildcard vmm/cmd/*.c vmm/cmd/hunt/*.c) $(AGENT_SRC)
LIB_OBJ := $(LIB_SRC:%.c=$(B)/%.o) $(if $(CLANG),$(B)/vmm/cpu/dbt/own_mem.o)
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

$(B)/%.o: %.c | $(B)/needs/reprise
	@mkdir -p $(@D)
	@echo "  CC $<"
	@$(CC) $(CFLAGS) $(if $(filter vmm/% inspect/% replay/% virtio-gpu-log/%,$<),$(CONVERSION)) $(CFLAGS_$*) -c -o $@ $< \
		$(if $(OWN_MEM_$*),&& $(RENAME_MEM) $@)

$(B)/%.o: %.S
	@mkdir -p $(@D)
	@$(CC) -c -o $@ $<

# Loops over pixels: vector code makes them five times as fast.
CFLAGS_virtio-gpu-log/picture := $(if $(filter rel clang,$(MODE)),-O3)
CFLAGS_virtio-gpu-log/play/play_look := $(CFLAGS_virtio-gpu-log/picture)

-include mk/*.mk

clean:
	rm -rf build

-include $(LIB_OBJ:.o=.d) $(CMD_OBJ:.o=.d)
.DELETE_ON_ERROR:
.PHONY: all clean
