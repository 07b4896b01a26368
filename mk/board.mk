# Firmware tables generated at build time: vmm/board/NAME.asl -> $(B)/gen/NAME.h (a C array of AML, NAME_aml).
# iasl's remarks go to a log that is shown only if it fails. Its table compiler id and version are
# in the AML header (bytes 28 to 35): acpi.c replaces them, so that two hosts' machines are equal.
AML := dsdt generation
$(AML:%=$(B)/gen/%.h): $(B)/gen/%.h: vmm/board/%.asl mk/board.mk | $(B)/needs/reprise
	@mkdir -p $(@D)
	@iasl -p $(@D)/$* $< >$(@D)/$*.log 2>&1 || { cat $(@D)/$*.log >&2; exit 1; }
	@{ echo '/* Generated from $< by iasl. */'; echo 'static const unsigned char $*_aml[] = {'; \
	   od -An -v -tx1 $(@D)/$*.aml | sed 's/ \([0-9a-f][0-9a-f]\)/0x\1,/g'; echo '};'; } >$@.tmp
	@mv -f $@.tmp $@

$(B)/vmm/board/acpi.o: $(AML:%=$(B)/gen/%.h)

# The firmware of 16 bits: vmm/board/bios_image.S -> $(B)/gen/bios_image.h, 4 KiB that end at 1 MiB. Recordings
# have these bytes in their RAM, whoever built the program: another assembler's choices would be another machine.
BIOS_SHA256 := 46f93c03bbdc26ef525a2e9e346f0eea61fbc63231550f35c51455d20ad09314
$(B)/gen/bios_image.h: vmm/board/bios_image.S mk/board.mk | $(B)/needs/reprise
	@mkdir -p $(@D)
	@as --32 -o $(@D)/bios.o $<
	@ld -m elf_i386 -Ttext 0xf000 --oformat binary -o $(@D)/bios.bin $(@D)/bios.o
	@echo "$(BIOS_SHA256)  $(@D)/bios.bin" | sha256sum --check --status || { \
	   echo "$<: its bytes are not those of the machine (BIOS_SHA256 in mk/board.mk)" >&2; exit 1; }
	@{ echo '/* Generated from $<. */'; echo 'static const unsigned char bios_image[] = {'; \
	   od -An -v -tx1 $(@D)/bios.bin | sed 's/ \([0-9a-f][0-9a-f]\)/0x\1,/g'; echo '};'; } >$@.tmp
	@mv -f $@.tmp $@

$(B)/vmm/board/bios.o: $(B)/gen/bios_image.h

# The keyboard's key names for files of events: KEY_NAME -> {"name", code}, as the kernel's header
# has them; vmm/live/input_file.c.
EVENT_CODES := /usr/include/linux/input-event-codes.h
$(B)/gen/keynames.h: $(wildcard $(EVENT_CODES)) mk/board.mk | $(B)/needs/reprise
	@mkdir -p $(@D)
	@{ echo '/* Generated from <linux/input-event-codes.h>: KEY_ names that have a number. */'; \
	   awk '$$1 == "#define" && $$2 ~ /^KEY_/ && $$3 ~ /^[0-9]+$$/ && $$3 > 0 && $$3 < 249 { \
	        print "{\"" tolower(substr($$2, 5)) "\", " $$2 "}," }' $(EVENT_CODES); } >$@.tmp
	@test $$(wc -l <$@.tmp) -gt 200 || { echo "$@: no names in $(EVENT_CODES)" >&2; exit 1; }
	@mv -f $@.tmp $@

$(B)/vmm/live/input_file.o: $(B)/gen/keynames.h
