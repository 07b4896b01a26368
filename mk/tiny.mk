# images/tiny: bare-metal guests for the tests, build/images/tiny/NAME.elf.
TINY_B     := build/images/tiny
TINY_COMMON := lib irq
TINY_DRIVER := virtio_gpu
TINY_GPU    := gpu gpu_hostile
TINY_NAMES := $(filter-out $(TINY_COMMON) $(TINY_DRIVER),$(patsubst images/tiny/%.c,%,$(wildcard images/tiny/*.c)))
TINY_FLAGS := -std=gnu11 -O2 $(WARNINGS) -ffreestanding -fPIE \
	-fvisibility=hidden -mno-red-zone -mgeneral-regs-only -fno-stack-protector -fno-asynchronous-unwind-tables \
	-fcf-protection=none -mno-80387 -fno-builtin -fno-jump-tables -MMD -MP
TINY_ELFS  := $(TINY_NAMES:%=$(TINY_B)/%.elf)

$(TINY_B)/%.o: images/tiny/%.c
	@mkdir -p $(@D)
	gcc $(TINY_FLAGS) -c -o $@ $<

$(TINY_B)/crt.o: images/tiny/crt.S images/tiny/layout.h
	@mkdir -p $(@D)
	gcc -c -o $@ $<

$(TINY_GPU:%=$(TINY_B)/%.elf): $(TINY_DRIVER:%=$(TINY_B)/%.o)
$(TINY_B)/%.elf: $(TINY_B)/%.o $(TINY_B)/crt.o $(TINY_COMMON:%=$(TINY_B)/%.o) images/tiny/tiny.ld
	gcc -nostdlib -static -no-pie -Wl,-T,images/tiny/tiny.ld -Wl,--build-id=none \
		-Wl,--no-warn-rwx-segments -Wl,-z,noexecstack -o $@ $(filter %.o,$^)

tiny: $(TINY_ELFS)

-include $(TINY_NAMES:%=$(TINY_B)/%.d) $(TINY_DRIVER:%=$(TINY_B)/%.d)
.PHONY: tiny
.SECONDARY: $(TINY_NAMES:%=$(TINY_B)/%.o) $(TINY_DRIVER:%=$(TINY_B)/%.o)
