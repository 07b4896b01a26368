# images/modes: a bare-metal guest of 32 bits that goes through all modes, build/images/modes/modes.elf.
MODES_B := build/images/modes
MODES_FLAGS := -m32 -std=gnu11 -O1 $(WARNINGS) -ffreestanding -fno-pic -fno-pie -mgeneral-regs-only \
	-fno-stack-protector -fcf-protection=none -fno-builtin -fno-asynchronous-unwind-tables -fno-omit-frame-pointer

$(MODES_B)/modes.elf: images/modes/modes.c images/modes/start.S images/modes/modes.ld
	@mkdir -p $(@D)
	gcc -m32 -c -o $(@D)/start.o images/modes/start.S
	gcc $(MODES_FLAGS) -c -o $(@D)/modes.o images/modes/modes.c
	ld -m elf_i386 -T images/modes/modes.ld -z noexecstack --no-warn-rwx-segments --build-id=none -o $@ \
		$(@D)/start.o $(@D)/modes.o

# A program of 16 bits, as a bzImage.
$(MODES_B)/setup.bin: images/modes/setup.S
	@mkdir -p $(@D)
	as --32 -o $(@D)/setup.o $<
	ld -m elf_i386 -Ttext 0 --oformat binary -o $@ $(@D)/setup.o

tiny: $(MODES_B)/modes.elf $(MODES_B)/setup.bin
