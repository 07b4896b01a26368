# Firmware tables generated at build time: vmm/board/dsdt.asl -> $(B)/gen/dsdt.h (a C array of AML).
# iasl's remarks go to a log that is shown only if it fails. Its table compiler id and version are
# in the AML header (bytes 28 to 35): acpi.c replaces them, so that two hosts' machines are equal.
$(B)/gen/dsdt.h: vmm/board/dsdt.asl
	@mkdir -p $(@D)
	@iasl -p $(@D)/dsdt $< >$(@D)/dsdt.log 2>&1 || { cat $(@D)/dsdt.log >&2; exit 1; }
	@{ echo '/* Generated from $< by iasl. */'; echo 'static const unsigned char dsdt_aml[] = {'; \
	   od -An -v -tx1 $(@D)/dsdt.aml | sed 's/ \([0-9a-f][0-9a-f]\)/0x\1,/g'; echo '};'; } >$@.tmp
	@mv -f $@.tmp $@

$(B)/vmm/board/acpi.o: $(B)/gen/dsdt.h
