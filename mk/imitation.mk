# tests/imitation: programs with an imitated KVM and performance counter in the place of the host's.
IMITATION_SRC := $(wildcard tests/imitation/*.c)
IMITATION_OBJ := $(IMITATION_SRC:%.c=$(B)/%.o)
$(eval $(call gpr_only,tests/imitation/inside))

# System calls, and functions of the engine for what the imitated hardware does otherwise.
IMITATION_WRAP := open ioctl close read fcntl syscall clock_gettime timer_create timer_settime \
	timer_delete sigaltstack \
	host_enter host_fini cache_find exec mem_write operand_close deliver_fault help_rdmsr help_wrmsr help_cpuid help_hlt \
	mmu_flush_all help_invlpg help_invpcid help_mov_system \
	pmu_cpu_read pmu_pin
IMITATION_LINK := $(IMITATION_WRAP:%=-Wl,--wrap=%)
IMITATION_BIN  := $(addprefix $(B)/tests/imitation/,reprise stops inject insn kvm_facts walk)

$(B)/tests/imitation/reprise: $(CMD_OBJ)
$(B)/tests/imitation/stops: $(B)/tests/tools/stops.o
$(B)/tests/imitation/walk: $(B)/tests/tools/walk.o
$(B)/tests/imitation/inject: $(B)/tests/tools/inject.o
$(B)/tests/imitation/kvm_facts: $(B)/tests/tools/kvm_facts.o
$(B)/tests/imitation/insn: $(patsubst %.c,$(B)/%.o,$(wildcard tests/insn/*.c))

$(IMITATION_BIN): $(IMITATION_OBJ) $(B)/libreprise.a
	@echo "  LD $@"
	@$(CC) $(LDFLAGS) $(IMITATION_LINK) -o $@ $(filter %.o,$^) $(B)/libreprise.a $(LDLIBS)
# The same questions to the host's own.
$(B)/tests/tools/kvm_facts: $(B)/tests/tools/kvm_facts.o $(B)/libreprise.a
	@$(CC) $(LDFLAGS) -o $@ $^ $(LDLIBS)
test-build: $(IMITATION_BIN) $(B)/tests/tools/kvm_facts

-include $(IMITATION_OBJ:.o=.d) $(B)/tests/tools/kvm_facts.d
.SECONDARY: $(IMITATION_OBJ) $(B)/tests/tools/kvm_facts.o
