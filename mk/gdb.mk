# What `reprise gdb` has gdb read, in the program: vmm/cmd/gdb_session.py -> $(B)/gen/gdb_session.h.
$(B)/gen/gdb_session.h: vmm/cmd/gdb_session.py mk/gdb.mk | $(B)/needs/reprise
	@mkdir -p $(@D)
	@{ echo '/* Generated from $<. */'; echo 'static const unsigned char gdb_session_py[] = {'; \
	   od -An -v -tx1 $< | sed 's/ \([0-9a-f][0-9a-f]\)/0x\1,/g'; echo '};'; } >$@.tmp
	@mv -f $@.tmp $@

$(B)/vmm/cmd/gdb.o: $(B)/gen/gdb_session.h
