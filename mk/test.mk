# `make test`: installs what is missing, builds everything, runs tests/run.py. MODE=rel|asan|ubsan.
# `make test T="boot/*"` runs some; `make soak SOAK_MINUTES=60`, `make bench`: long runs.
JOBS         ?= $(shell nproc)
SOAK_MINUTES ?= 10

# tests/unit: one program each. What has a machine in its head links with a toy one, so that
# machine.o of the library is not pulled in.
UNIT_NAMES := $(patsubst tests/unit/%.c,%,$(wildcard tests/unit/test_*.c))
UNIT_BIN   := $(UNIT_NAMES:%=$(B)/tests/unit/%)
$(UNIT_BIN:=.o): | $(B)/needs/test
TOY_NAMES  := test_log test_player test_recording test_live
TOY_OBJ    := $(B)/tests/unit/log_sample.o $(B)/tests/unit/fake_machine.o
CFLAGS_tests/unit/test_live := -Itests/unit

$(TOY_NAMES:%=$(B)/tests/unit/%): $(TOY_OBJ)
GPU_OBJ := $(B)/tests/unit/gpu_stream.o
$(B)/tests/unit/test_gpu_decode $(B)/tests/unit/test_gpu_log $(B)/tests/unit/test_gpu_stream \
	$(B)/tests/unit/test_gpu_drive $(B)/tests/unit/test_gpu_track \
	$(B)/tests/unit/test_gpu_memory: $(GPU_OBJ)
$(B)/tests/unit/test_gpu_memory: WRAP := malloc calloc realloc strdup free
$(B)/tests/unit/test_gpu_store: WRAP := malloc calloc
$(B)/tests/unit/test_tsc_insn: $(B)/guest-agent/tsc/insn.o
$(UNIT_BIN): $(B)/tests/unit/%: $(B)/tests/unit/%.o $(B)/libreprise.a
	@echo "  LD $@"
	@$(CC) $(LDFLAGS) $(WRAP:%=-Wl,--wrap=%) -o $@ $(filter %.o,$^) $(B)/libreprise.a -lcmocka $(LDLIBS)

# What the tests use besides: the table in docs/format.md, programs that run inside the guest.
TOOLS := $(B)/tests/tools/format_records $(B)/tests/tools/log_version $(B)/tests/tools/walk \
	$(B)/tests/tools/gpu_log_sample $(B)/tests/tools/gpu_records $(B)/tests/tools/log_forge $(B)/tests/tools/disk_forge \
	$(B)/tests/tools/confined $(B)/tests/tools/decoded \
	$(B)/tests/tools/inject $(B)/tests/tools/stops
TOOLS += $(B)/tests/tools/checkpoint_forge $(B)/tests/tools/machine_rows
$(B)/tests/tools/gpu_log_sample: $(GPU_OBJ)
$(TOOLS): $(B)/tests/tools/%: $(B)/tests/tools/%.o $(B)/libreprise.a
	@$(CC) $(LDFLAGS) -o $@ $(filter %.o,$^) $(B)/libreprise.a $(LDLIBS)

GUEST_BIN := $(addprefix build/images/guest/,check heap lines many steps echod frames modeset compat asks parts deaths cpus planted marker litmus spins wide)
# For gdb: lines, at addresses where no other program of the guest is.
build/images/guest/heap: GUEST_FLAGS := -g -Wl,-Ttext-segment=0x10000000
build/images/guest/lines: GUEST_FLAGS := -g -O0 -Wl,-Ttext-segment=0x20000000
build/images/guest/steps: GUEST_FLAGS := -g -O0 -Wl,-Ttext-segment=0x30000000
build/images/guest/parts: GUEST_FLAGS := -g -O1 -Wl,-Ttext-segment=0x50000000
build/images/guest/many: GUEST_FLAGS := -g -O1 -Wl,-Ttext-segment=0x40000000
build/images/guest/planted: GUEST_FLAGS := -g
build/images/guest/marker: GUEST_FLAGS := -I.
build/images/guest/marker: guest-agent/reprise-mark.h
build/images/guest/deaths: GUEST_FLAGS := -g -O1 -Wl,-Ttext-segment=0x60000000
# Of 32 bits, without a C library: Debian's gcc has none for it.
build/images/guest/compat: tests/guest/compat.c
	@mkdir -p $(@D)
	@echo "  CC $< (32 bits, for the guest)"
	@gcc -std=gnu11 -g -O1 -m32 -march=pentium4 -ffreestanding -fno-pic -no-pie -fno-stack-protector \
		-fno-asynchronous-unwind-tables -fcf-protection=none $(WARNINGS) -nostdlib -static -o $@ $<
build/images/guest/%: tests/guest/%.c
	@mkdir -p $(@D)
	@echo "  CC $< (static, for the guest)"
	@gcc -std=gnu11 -O1 -fno-builtin $(WARNINGS) -static \
		$(GUEST_FLAGS) -o $@ $< -lm

# tests/fuzz: `make fuzz T=log` runs one for long; `make test` a fixed number of mutations of each,
# always with the address sanitizer.
# Each target but `recording` has a corpus, which makes the list.
FUZZ_NAMES  := $(filter-out $(if $(HAVE_LIBVIRT),,libvirt_xml),recording $(notdir $(wildcard tests/fuzz/corpus/*)))
FUZZ_VIRTIO := $(filter virtio-%,$(FUZZ_NAMES))
FUZZ_SRC    := $(filter-out $(FUZZ_VIRTIO),$(FUZZ_NAMES)) virtio $(FUZZ_VIRTIO:virtio-%=virtio_%)
FUZZ_HELP   := fake_renderer gpu_commands walk_gpu_log
FUZZ_BIN    := $(FUZZ_NAMES:%=$(B)/tests/fuzz/fuzz_%)
$(B)/tests/fuzz/fuzz_agent_start: $(B)/guest-agent/agent/start.o
$(B)/tests/fuzz/fuzz_log: $(TOY_OBJ)
$(B)/tests/fuzz/fuzz_gpu_decode $(B)/tests/fuzz/fuzz_gpu_log: $(GPU_OBJ)
$(B)/tests/fuzz/fuzz_gpu_log $(B)/tests/fuzz/fuzz_gpu_play: $(B)/tests/fuzz/gpu_repair.o
$(filter-out $(FUZZ_VIRTIO:%=$(B)/tests/fuzz/fuzz_%),$(FUZZ_BIN)): %: %.o
$(FUZZ_VIRTIO:%=$(B)/tests/fuzz/fuzz_%): $(B)/tests/fuzz/fuzz_virtio-%: \
	$(B)/tests/fuzz/fuzz_virtio_%.o $(B)/tests/fuzz/fuzz_virtio.o
$(B)/tests/fuzz/fuzz_gpu_log: $(B)/tests/fuzz/walk_gpu_log.o
$(B)/tests/fuzz/fuzz_agent_frames: $(B)/vmm/cmd/agent_frames.o
$(B)/tests/fuzz/fuzz_agent_hello: $(B)/guest-agent/agent/sync.o
$(B)/tests/fuzz/fuzz_agent_copy: $(B)/guest-agent/agent/copy_sink.o
$(B)/tests/fuzz/fuzz_agent_copy $(B)/tests/fuzz/fuzz_run_write: $(B)/tests/fuzz/hostile_place.o
$(B)/tests/fuzz/fuzz_run_write: $(B)/vmm/cmd/run_write.o
$(B)/tests/fuzz/fuzz_hunt_state: $(B)/vmm/cmd/hunt/state.o
$(B)/tests/fuzz/fuzz_virtio-gpu: $(FUZZ_HELP:%=$(B)/tests/fuzz/%.o)
$(B)/tests/fuzz/fuzz_recording $(B)/tests/tools/checkpoint_forge: $(B)/tests/fuzz/checkpoint_edit.o
$(FUZZ_BIN): $(B)/tests/fuzz/mutate.o $(B)/libreprise.a
	@echo "  LD $@"
	@$(CC) $(LDFLAGS) -o $@ $(filter %.o,$^) $(B)/libreprise.a $(LDLIBS)
fuzz-build: $(FUZZ_BIN) $(B)/tests/fuzz/fuzz_inspect

# Random code in ring 0, run twice with different slices (tests/fuzz/fuzz_guest.c).
$(B)/tests/fuzz/fuzz_guest: $(B)/tests/fuzz/fuzz_guest.o $(B)/tests/fuzz/guest_stub.o $(B)/tests/fuzz/guest_stub32.o \
	$(B)/tests/fuzz/guest_cpus.o $(B)/tests/fuzz/guest_stub_cpus.o $(B)/libreprise.a
	@echo "  LD $@"
	@$(CC) $(LDFLAGS) -o $@ $^ $(LDLIBS)

# What is seen of a guest's kernel that lies; as `fuzz-build` always with the address sanitizer.
$(B)/tests/fuzz/fuzz_inspect: $(B)/tests/fuzz/fuzz_inspect.o $(filter-out $(B)/vmm/main.o,$(CMD_OBJ)) $(B)/libreprise.a
	@echo "  LD $@"
	@$(CC) $(LDFLAGS) -Wl,--wrap=machine_peek -Wl,--wrap=machine_peek_physical -o $@ $^ $(LDLIBS)

FUZZ_RUNS ?= 1000000
fuzz:
	@test -n "$(T)" || { echo "make fuzz T=NAME, NAME one of: $(FUZZ_NAMES)"; exit 2; }
	@$(MAKE) --no-print-directory MODE=asan -j$(JOBS) build/asan/tests/fuzz/fuzz_$(T)
	@FUZZ_RUNS=$(FUZZ_RUNS) FUZZ_SEED=$${FUZZ_SEED:-$$(od -An -N3 -tu4 /dev/urandom)} \
		build/asan/tests/fuzz/fuzz_$(T) tests/fuzz/corpus/$(T)

# tests/bench: the machine without a log.
$(B)/tests/bench/nolog: $(B)/tests/bench/nolog.o $(filter-out $(B)/vmm/main.o,$(CMD_OBJ)) $(B)/libreprise.a
	@$(CC) $(LDFLAGS) -o $@ $^ $(LDLIBS)
# ... and times of moving about in a recording.
$(B)/tests/bench/travel: $(B)/tests/bench/travel.o $(B)/libreprise.a
	@$(CC) $(LDFLAGS) -o $@ $^ $(LDLIBS)

# ... and work for a guest and the host, from one and the same program.
SPEED_SRC := $(wildcard tests/bench/speed/*.c)
$(B)/tests/bench/speed/speed: $(SPEED_SRC) tests/bench/speed/speed.h
	@mkdir -p $(@D)
	@echo "  CC $@ (static, for the guest)"
	@gcc -std=gnu11 -O2 $(WARNINGS) -static -o $@ $(SPEED_SRC) -lz -lpthread

test-build: build/reprise $(B)/reprise $(UNIT_BIN) $(TOOLS) $(B)/tests/insn/insn \
	$(B)/tests/fuzz/fuzz_guest $(B)/tests/bench/nolog $(B)/tests/bench/travel $(B)/tests/bench/speed/speed \
	tiny $(GUEST_BIN)

# The parts one after the other, each with all CPUs; images need no compiler and take the network.
test: deps-all
	@$(MAKE) --no-print-directory -j$(JOBS) test-build images images-if-possible
	@$(MAKE) --no-print-directory -j$(JOBS) MODE=asan fuzz-build
	@tests/run.py --mode $(MODE) $(T)

# All of it on another release of Debian, in a minimal system below build/release. R=trixie [T=demo|deb|test]
test-release:
	@test -n "$(R)" || { echo "make test-release R=RELEASE [T=demo|deb|test], RELEASE as trixie"; exit 2; }
	@tests/release.sh "$(R)" $(T)

soak: deps-all
	@$(MAKE) --no-print-directory -j$(JOBS) test-build images images-if-possible
	@$(MAKE) --no-print-directory -j$(JOBS) MODE=asan fuzz-build
	@tests/soak.py --mode $(MODE) --minutes $(SOAK_MINUTES)

bench: deps-all
	@$(MAKE) --no-print-directory -j$(JOBS) MODE=rel test-build images images-if-possible
	@tests/bench/bench.py $(BENCH_ARGS)

TEST_OBJ := $(UNIT_NAMES:%=$(B)/tests/unit/%.o) $(TOY_OBJ) $(GPU_OBJ) \
	$(FUZZ_SRC:%=$(B)/tests/fuzz/fuzz_%.o) $(FUZZ_HELP:%=$(B)/tests/fuzz/%.o) $(B)/tests/fuzz/gpu_repair.o $(B)/tests/fuzz/hostile_place.o \
	$(B)/tests/fuzz/checkpoint_edit.o \
	$(B)/tests/fuzz/mutate.o $(B)/tests/fuzz/fuzz_guest.o $(B)/tests/fuzz/fuzz_inspect.o $(B)/tests/fuzz/guest_cpus.o $(B)/tests/bench/nolog.o $(B)/tests/bench/travel.o \
	$(TOOLS:=.o)
-include $(TEST_OBJ:.o=.d)
.SECONDARY: $(TEST_OBJ)
.PHONY: test test-build test-release soak bench fuzz fuzz-build
