# tests/insn: the engine against the host CPU, and against itself when stopped. `make insn-test`.
INSN_SRC   := $(wildcard tests/insn/*.c)
INSN_OBJ   := $(INSN_SRC:%.c=$(B)/%.o)
INSN_CASES ?= 550000
INSN_STOPS ?= 3000
INSN_SEED  ?=

# The program must lie far from the low addresses that the cases use.
$(INSN_OBJ): EXTRA_CFLAGS += -fPIE

$(B)/tests/insn/insn: $(INSN_OBJ) $(B)/libreprise.a
	$(CC) $(LDFLAGS) -pie -o $@ $^ $(LDLIBS)

insn-test: $(B)/tests/insn/insn
	$< --model v2 --cases $(INSN_CASES) $(INSN_SEED:%=--seed %)
	$< --model v3 --cases $(INSN_CASES) $(INSN_SEED:%=--seed %)
	$< --stops --model v2 --cases $(INSN_STOPS) $(INSN_SEED:%=--seed %)
	$< --stops --model v3 --cases $(INSN_STOPS) $(INSN_SEED:%=--seed %)

-include $(INSN_OBJ:.o=.d)
.PHONY: insn-test
